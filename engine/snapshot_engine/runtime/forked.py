"""Slots as processes of this machine, for tests that need no Spark. The protocol and the slots are the same.

They are forked from a server process that has imported everything and has no threads: forking the test's own process,
with its event loop and thread pools, could leave a lock held for ever in the child.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from types import ModuleType

import cloudpickle

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.launcher import ExecutorInfo, OnEnd
from snapshot_engine.runtime.slot_task import SlotTask
from snapshot_engine.state.state_types import note_field_types

MOST_SLOTS = 1024
"""A process is only a process: nothing limits them but the machine."""

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["snapshot_engine.runtime.preloaded"])


class ForkedLauncher:
    """Ends all slots of an attempt when one of them dies, as a barrier-mode Spark job does."""

    control_host = "127.0.0.1"
    application_id = "forked"

    def __init__(self) -> None:
        self._processes: dict[tuple[int, Attempt], list[multiprocessing.process.BaseProcess]] = {}

    def launch(self, task: SlotTask, on_end: OnEnd) -> None:
        packed = cloudpickle.dumps(task)
        processes: list[multiprocessing.process.BaseProcess] = [
            _server.Process(target=_run_slot, args=(packed, slot), daemon=True) for slot in task.slots()
        ]
        for process in processes:
            process.start()
        self._processes[(task.region, task.attempt)] = processes
        threading.Thread(target=self._wait, args=(task, processes, on_end), daemon=True).start()

    def cancel(self, region: int, attempt: Attempt) -> None:
        for process in self._processes.get((region, attempt), ()):
            process.kill()

    def pids(self) -> list[int]:
        """The processes of all slots that are alive, for tests that kill some of them."""
        alive = [process for group in self._processes.values() for process in group if process.is_alive()]
        return [process.pid for process in alive if process.pid is not None]

    def slot_started(self, region: int, attempt: Attempt, slot: int, executor: str) -> None:
        """All are in one place."""

    def slot_ended(self, region: int, attempt: Attempt, slot: int, lost: bool) -> None:
        """Nothing is kept about slots."""

    def executors(self) -> list[ExecutorInfo]:
        return [ExecutorInfo("driver", "localhost", MOST_SLOTS)]

    def replace_executor(self, executor: str) -> bool:
        """There is only this process."""
        return False

    def close(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _wait(self, task: SlotTask, processes: list[multiprocessing.process.BaseProcess], on_end: OnEnd) -> None:
        for process in processes:
            process.join()
        failed = [process.exitcode for process in processes if process.exitcode != 0]
        on_end(task.region, task.attempt, f"a slot ended with exit code {failed[0]}" if failed else None)


def ship_by_value(module: ModuleType) -> None:
    """The slots cannot import `module`, a test file for example: send its code along."""
    note_field_types(module)
    cloudpickle.register_pickle_by_value(module)


def _run_slot(packed: bytes, slot: int) -> None:
    from snapshot_engine.runtime.slot import Slot

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the JobMaster decides what Ctrl-C means
    Slot(cloudpickle.loads(packed), slot, "driver").run()
