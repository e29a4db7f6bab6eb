"""Leader election by a Lease: acquired before anything is watched, and when it is lost, the process ends."""

import asyncio
import logging
import math
from collections.abc import Callable
from datetime import UTC, datetime

from streamingjob_operator.kube import LEASES, ApiError, Kube

log = logging.getLogger(__name__)

DURATION_SECONDS = 10
ACQUIRE_SECONDS = 2.0
"""Between two attempts of a standby, and how long it waits for the answer to one."""
RENEW_SECONDS = 2.0
"""Also how long an answer is waited for."""
RETRY_SECONDS = 0.5
GIVE_UP_AFTER_SECONDS = 8.0
"""Since the last renewal was asked for, and well before others may take it: from then on this process must not act."""


class LeaseLostError(RuntimeError):
    """Another process may act now, so this one must not."""


class Lease:
    def __init__(self, kube: Kube, namespace: str, name: str, identity: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._identity = identity
        self._seen: tuple[str, float] | None = None
        """The holder's last renewal, and when this process first saw it: clocks of two machines need not agree."""
        self._other_holder: str | None = None
        """Whose name was on it at the last look."""
        self._held_since = -math.inf
        """When the last answered request to hold it was sent, which is before others begin to count."""

    async def acquire(self) -> None:
        """Tries until it holds the lease, whatever the API server answers: a standby is there for bad times."""
        while not await self._ask_for(ACQUIRE_SECONDS):
            await asyncio.sleep(ACQUIRE_SECONDS)
        log.info("%s holds the lease %s/%s", self._identity, self._namespace, self._name)

    async def keep(self) -> None:
        """Renews for ever; raises LeaseLostError when it cannot. One slow answer is no loss: it is asked again."""
        loop = asyncio.get_running_loop()
        pause = RENEW_SECONDS
        while loop.time() + pause < (deadline := self._held_since + GIVE_UP_AFTER_SECONDS):
            await asyncio.sleep(pause)
            renewed = await self._ask_for(min(RENEW_SECONDS, deadline - loop.time()))
            if self._other_holder is not None:
                raise LeaseLostError(f"{self._other_holder} has taken the lease {self._namespace}/{self._name}")
            pause = RENEW_SECONDS if renewed else RETRY_SECONDS
        raise LeaseLostError(f"the lease {self._namespace}/{self._name} is lost")

    async def _ask_for(self, seconds: float) -> bool:
        asked = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(seconds):
                held = await self._try_to_hold()
        except (ApiError, TimeoutError) as error:
            log.warning("no answer about the lease: %s", str(error) or f"none within {seconds:.1f} s")
            return False
        if held:
            self._held_since, self._other_holder = asked, None
        return held

    async def release(self) -> None:
        """So that the next one need not wait for it to expire. Only when this process has ceased to act."""
        try:
            lease = await self._kube.get(LEASES, self._namespace, self._name)
            if lease is not None and lease["spec"].get("holderIdentity") == self._identity:
                lease["spec"] |= {"holderIdentity": "", "leaseDurationSeconds": 1}
                await self._kube.replace(LEASES, lease)
        except ApiError as error:
            log.warning("the lease is left to expire: %s", error)

    async def _try_to_hold(self) -> bool:
        try:
            lease = await self._kube.get(LEASES, self._namespace, self._name)
            if lease is None:
                await self._kube.create(LEASES, self._body())
                return True
            if not self._may_take(lease["spec"], asyncio.get_running_loop().time):
                return False
            body = self._body()
            body["metadata"]["resourceVersion"] = lease["metadata"]["resourceVersion"]
            await self._kube.replace(LEASES, body)
        except ApiError as error:
            if error.status == 409:  # somebody else was quicker
                return False
            raise
        return True

    def _may_take(self, spec: dict[str, object], clock: Callable[[], float]) -> bool:
        holder, renewal = spec.get("holderIdentity"), str(spec.get("renewTime"))
        self._other_holder = str(holder) if holder and holder != self._identity else None
        if self._other_holder is None:
            return True
        if self._seen is None or self._seen[0] != renewal:
            self._seen = (renewal, clock())
        duration = spec.get("leaseDurationSeconds")
        limit = float(duration) if isinstance(duration, int) else float(DURATION_SECONDS)
        return clock() - self._seen[1] > limit

    def _body(self) -> dict[str, dict[str, object]]:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {
            "metadata": {"name": self._name, "namespace": self._namespace},
            "spec": {
                "holderIdentity": self._identity,
                "leaseDurationSeconds": DURATION_SECONDS,
                "acquireTime": now,
                "renewTime": now,
            },
        }
