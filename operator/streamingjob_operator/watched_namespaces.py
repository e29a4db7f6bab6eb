"""Which of the watched namespaces answer: one that is gone, or whose Role is, ends the care for no other.

kopf ends, and the process with it, when a namespace that it watches refuses for longer than it tries. So it is told of
those that answer only, before it starts and with every resync.
"""

import asyncio
import logging
from collections.abc import Mapping

# What kopf.operator() takes as `insights`, under no public name.
from kopf._cogs.structs.references import Insights, NamespaceName

from streamingjob_operator.kube import STREAMING_JOBS, ApiError, Kube
from streamingjob_operator.metrics import OperatorMetrics

log = logging.getLogger(__name__)

PAUSE_SECONDS = 5.0
"""Between two looks as long as there is nothing to watch."""


def is_refused(error: ApiError) -> bool:
    """Nothing can be listed there until somebody makes what is missing. Any other error passes by itself."""
    return error.status in (403, 404)


class WatchedNamespaces:
    def __init__(self, kube: Kube, wanted: tuple[str, ...], metrics: OperatorMetrics) -> None:
        self._kube = kube
        self._wanted = wanted
        self._metrics = metrics
        self.insights = Insights()
        """kopf's own: it watches the namespaces in there, whenever they change."""
        self.left_out: frozenset[str] = frozenset()

    @property
    def answering(self) -> tuple[str, ...]:
        return tuple(namespace for namespace in self._wanted if namespace not in self.left_out)

    async def until_one_answers(self) -> None:
        """kopf must not be started with no namespaces, which means all of them to it."""
        while True:
            try:
                await self.note(await self._refusals())
            except ApiError as error:
                log.warning("it is not known which namespaces can be watched, and asked again: %s", error)
            else:
                if self.answering or not self._wanted:
                    return
            await asyncio.sleep(PAUSE_SECONDS)

    async def note(self, refusals: Mapping[str, ApiError]) -> None:
        """From now on those are left out, and no others. Each is told once, when it goes and when it comes back."""
        for namespace in sorted(set(refusals) - self.left_out):
            log.warning("%s", _why_left_out(namespace, refusals[namespace]))
        for namespace in sorted(self.left_out - set(refusals)):
            log.info("namespace %s answers again: its jobs are looked after", namespace)
        self.left_out = frozenset(refusals)
        self._metrics.namespaces_left_out.set(len(refusals))
        await self._tell_kopf()

    async def _refusals(self) -> dict[str, ApiError]:
        refusals = {}
        for namespace in self._wanted:
            try:
                await self._kube.list(STREAMING_JOBS, namespace)
            except ApiError as error:
                if not is_refused(error):
                    raise
                refusals[namespace] = error
        return refusals

    async def _tell_kopf(self) -> None:
        """Also if nothing has changed here: kopf begins by adding the namespaces that it was started with."""
        told = self.insights.namespaces
        if self._wanted and told != set(self.answering):
            async with self.insights.revised:
                told.clear()
                told.update(map(NamespaceName, self.answering))
                self.insights.revised.notify_all()


def _why_left_out(namespace: str, error: ApiError) -> str:
    return (
        f"namespace {namespace} is left out, its jobs are not looked after: StreamingJobs cannot be listed there "
        f"({error}). If it is gone, take it out of watchNamespaces; if not, upgrade the release, which makes the "
        "operator's Role there again. It is taken up when it answers."
    )
