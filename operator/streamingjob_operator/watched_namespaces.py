"""Which of the watched namespaces answer: one that is gone, or whose Role is, ends the care for no other.

kopf ends, and the process with it, when a namespace that it watches refuses for longer than it tries. So it is told of
those that answer only, before it starts and with every resync. It also looks only once which kinds there are: so it is
not started before StreamingJobs are among them.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping

# What kopf.operator() takes as `insights`, under no public name.
from kopf._cogs.structs.references import Insights, NamespaceName

from snapshot_engine.wire.spec import PLURAL
from streamingjob_operator.kube import STREAMING_JOBS, ApiError, Kube
from streamingjob_operator.metrics import OperatorMetrics

log = logging.getLogger(__name__)

Scope = str | None
"""A namespace, or all of them at once."""

PAUSE_SECONDS = 5.0
"""Between two looks as long as there is nothing to watch."""


def is_refused(error: ApiError) -> bool:
    """Nothing can be listed there until somebody makes what is missing. Any other error passes by itself."""
    return error.status in (403, 404)


class NotWatchedError(RuntimeError):
    """Jobs would come and go, and nobody would see it."""


class WatchedNamespaces:
    def __init__(self, kube: Kube, wanted: tuple[str, ...], metrics: OperatorMetrics) -> None:
        self._kube = kube
        self._wanted = wanted
        self._scopes: tuple[Scope, ...] = wanted or (None,)
        self._metrics = metrics
        self.insights = Insights()
        """kopf's own: it watches the namespaces in there, whenever they change."""
        self.left_out: frozenset[Scope] = frozenset()

    @property
    def answering(self) -> tuple[str, ...]:
        return tuple(namespace for namespace in self._wanted if namespace not in self.left_out)

    async def until_one_answers(self) -> None:
        """kopf must not be started with no namespaces, which means all of them to it, nor without the CRD."""
        waited = False
        while True:
            try:
                await self.note(await self._refusals())
            except ApiError as error:
                log.warning("it is not known which namespaces can be watched, and asked again: %s", error)
            else:
                if self.left_out != set(self._scopes):
                    break
            waited = True
            await asyncio.sleep(PAUSE_SECONDS)
        if waited:  # what the API server says of its kinds follows a new CRD by a moment
            await asyncio.sleep(PAUSE_SECONDS)

    async def note(self, refusals: Mapping[Scope, ApiError]) -> None:
        """From now on those are left out, and no others. Each is told once, when it goes and when it comes back."""
        for warning in _why_left_out({scope: refusals[scope] for scope in set(refusals) - self.left_out}):
            log.warning("%s", warning)
        back = self.left_out - set(refusals)
        if back:
            log.info("StreamingJobs can be listed in %s: they are looked after", _named(back))
        self.left_out = frozenset(refusals)
        self._metrics.namespaces_left_out.set(len(refusals))
        await self._tell_kopf()

    def require_that_jobs_are_watched(self) -> None:
        """Raises NotWatchedError if kopf has looked which kinds there are, and StreamingJobs were not among them."""
        kinds = {resource.plural for resource in self.insights.watched_resources}
        if self.insights.ready_resources.is_set() and PLURAL not in kinds:
            raise NotWatchedError(
                "the API server did not name StreamingJobs among its kinds, so they are not watched: the operator ends "
                "and starts again. If that goes on, see whether the CRD of crds/streamingjobs.yaml is Established."
            )

    async def _refusals(self) -> dict[Scope, ApiError]:
        refusals: dict[Scope, ApiError] = {}
        for scope in self._scopes:
            try:
                await self._kube.list(STREAMING_JOBS, scope)
            except ApiError as error:
                if not is_refused(error):
                    raise
                refusals[scope] = error
        return refusals

    async def _tell_kopf(self) -> None:
        """Also if nothing has changed here: kopf begins by adding the namespaces that it was started with."""
        told = self.insights.namespaces
        if self._wanted and told != set(self.answering):
            async with self.insights.revised:
                told.clear()
                told.update(map(NamespaceName, self.answering))
                self.insights.revised.notify_all()


def _why_left_out(refusals: Mapping[Scope, ApiError]) -> list[str]:
    without_crd = {scope: error for scope, error in refusals.items() if error.status == 404}
    warnings = [_forbidden(scope, error) for scope, error in refusals.items() if error.status != 404]
    if without_crd:
        warnings.append(
            f"there are no StreamingJobs in {_named(without_crd)}: their CRD is not installed "
            f"({next(iter(without_crd.values()))}). Apply crds/streamingjobs.yaml, or install the chart with "
            "crd.install: true. It is waited for."
        )
    return sorted(warnings)


def _forbidden(scope: Scope, error: ApiError) -> str:
    where = _named([scope])
    what = (
        f"{where} is left out, its jobs are not looked after: StreamingJobs or pods cannot be listed there ({error})."
    )
    if scope is None:
        return f"{what} Upgrade the release, which makes the operator's ClusterRole again. It is waited for."
    return (
        f"{what} If it is gone, take it out of watchNamespaces; if not, upgrade the release, which makes the "
        "operator's Role there again. It is taken up when it answers."
    )


def _named(scopes: Iterable[Scope]) -> str:
    names = sorted(scope for scope in scopes if scope is not None)
    if not names:
        return "the cluster"
    return f"namespace {names[0]}" if len(names) == 1 else f"namespaces {', '.join(names)}"
