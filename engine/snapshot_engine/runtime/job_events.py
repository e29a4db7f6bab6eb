"""What happens to a job, for whoever wants to know: metrics, the status API, the terminal.

The JobMaster calls these in its event loop. Everything here does nothing; observers override what they show.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from snapshot_engine.protocol.checkpoints import Abort, Completed
from snapshot_engine.protocol.critical_path import CriticalPath
from snapshot_engine.protocol.elements import Attempt, SubtaskId
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime.control_server import SlotConnection
from snapshot_engine.runtime.launcher import ExecutorInfo
from snapshot_engine.storage.manifest import Manifest

if TYPE_CHECKING:
    from snapshot_engine.runtime.job_result import JobResult

log = logging.getLogger(__name__)


class JobEvents:
    def restoring(self, manifest: Manifest) -> None: ...
    def starting(self, attempts: Mapping[int, Attempt], checkpoint: int | None) -> None: ...
    def slot_restored(self, connection: SlotConnection, seconds: float) -> None: ...
    def region_running(self, run: RegionRun) -> None: ...
    def region_finished(self, run: RegionRun) -> None: ...
    def region_failed(self, run: RegionRun, cause: str, message: str, traceback: str, silent: float) -> None:
        """`silent`: for so many seconds the slot that failed had not been heard of."""

    def region_stopping(self, run: RegionRun) -> None:
        """Its slots are told to stop: it failed itself, or restarts with one that did."""

    def all_failed(self, reason: str) -> None:
        """Something that no region can be blamed for: all of them restart."""

    def region_delivers(self, run: RegionRun, after: float) -> None:
        """The first rows have left the region, so many seconds after it ran."""

    def all_running(self) -> None: ...
    def executors_changed(self, executors: Sequence[ExecutorInfo]) -> None: ...
    def heartbeat(self, connection: SlotConnection, subtasks: dict[str, dict[str, Any]]) -> None: ...
    def checkpoint_triggered(self, checkpoint: int) -> None: ...
    def checkpoint_completed(
        self, manifest: Manifest, outcome: Completed, path: CriticalPath, uri: str, written: int
    ) -> None:
        """`written`: bytes that are new with it; earlier checkpoints had written the rest."""

    def checkpoint_aborted(self, action: Abort) -> None: ...
    def acknowledged(self, checkpoint: int, subtask: SubtaskId) -> None: ...
    def committed(self, operator: str, count: int) -> None: ...
    def commit_failed(self, operator: str, message: str) -> None:
        """It is tried again. `message` names the sink, the try and the reason."""

    def ended(self, result: JobResult) -> None: ...


class EventFan(JobEvents):
    """Tells several observers, in order. One that raises does not keep the others, or the job, from going on."""

    def __init__(self, *observers: JobEvents) -> None:
        self._observers = observers

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(JobEvents, name):
            return object.__getattribute__(self, name)
        observers = object.__getattribute__(self, "_observers")

        def tell(*arguments: Any) -> None:
            for observer in observers:
                try:
                    getattr(observer, name)(*arguments)
                except Exception:
                    log.exception("%s failed in %s", type(observer).__name__, name)

        return tell
