"""One long poll for each running driver: its status comes to the operator, nobody asks in a loop."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from snapshot_engine.wire.status import JobStatus
from streamingjob_operator.jobmaster import JobMaster, JobMasterError, JobMasterSilentError
from streamingjob_operator.observation import Report

log = logging.getLogger(__name__)

WAIT_SECONDS = 20.0
PROGRESS_SECONDS = 15.0
PAUSE_SECONDS = 0.05
"""Between two polls, so that a driver that answers at once cannot make the operator spin."""
RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class Followed:
    """Which driver is followed; another generation or another address is another driver."""

    generation: int
    address: str


class Followers:
    def __init__(
        self,
        on_report: Callable[[str, Report], None],
        on_silence: Callable[[str, datetime], None],
    ) -> None:
        self._on_report = on_report
        self._on_silence = on_silence
        self._tasks: dict[str, tuple[Followed, asyncio.Task[None]]] = {}

    def follow(self, uid: str, driver: Followed, job_master: JobMaster) -> None:
        present = self._tasks.get(uid)
        if present is not None and present[0] == driver and not present[1].done():
            return
        self.unfollow(uid)
        task = asyncio.create_task(self._follow(uid, driver, job_master), name=f"follow {uid}")
        self._tasks[uid] = (driver, task)

    def unfollow(self, uid: str) -> None:
        present = self._tasks.pop(uid, None)
        if present is not None:
            present[1].cancel()

    async def close(self) -> None:
        tasks = [task for _, task in self._tasks.values()]
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks.clear()

    async def _follow(self, uid: str, driver: Followed, job_master: JobMaster) -> None:
        revision: int | None = None
        silent_since: datetime | None = None
        while True:
            try:
                answer = await job_master.status(revision, WAIT_SECONDS, PROGRESS_SECONDS)
            except JobMasterError as error:
                _tell(error, driver, uid, again=silent_since is not None)
                revision, silent_since = None, silent_since or datetime.now(UTC)
                self._on_silence(uid, silent_since)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            silent_since = None
            if answer.status.generation == driver.generation and answer.revision != revision:
                self._on_report(uid, Report(answer.status, datetime.now(UTC)))
            revision = answer.revision
            await asyncio.sleep(PAUSE_SECONDS)


def _tell(error: JobMasterError, driver: Followed, uid: str, again: bool) -> None:
    """That nobody answers is usual while a driver starts or goes. A refusal, of the token for instance, is not."""
    level = logging.DEBUG if again or isinstance(error, JobMasterSilentError) else logging.WARNING
    log.log(level, "driver %s of job %s: %s", driver.generation, uid, error)


def is_transition(before: JobStatus | None, now: JobStatus) -> bool:
    """Whether something has happened that cannot wait; mere progress can."""
    return before is None or _essence(before) != _essence(now)


def _essence(status: JobStatus) -> tuple[object, ...]:
    return (
        status.generation,
        status.application_id,
        status.phase,
        status.error,
        status.slots,
        [(region.id, region.state, region.attempt) for region in status.regions],
        [(executor.executor_id, executor.pod_uid) for executor in status.executors],
        [(savepoint.name, savepoint.state) for savepoint in status.savepoints],
        status.checkpoint.last_completed_id is None,
    )
