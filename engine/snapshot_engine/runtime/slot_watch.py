"""Who is still there: slots that fall silent, executors that somebody outside says are lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from snapshot_engine.protocol.region_run import ACTIVE, RegionState
from snapshot_engine.runtime.control_server import UNREACHABLE, SlotConnection
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.runtime.launcher import ExecutorInfo, SlotLauncher
from snapshot_engine.runtime.messages import Ping
from snapshot_engine.runtime.region_shell import RegionShell

log = logging.getLogger(__name__)

WATCH_SECONDS = 0.2
MOST_PINGS_SECONDS = 10.0
"""A slot that has been silent for longer is pinged no more: it would find them all when it reads again."""
OUT_OF_REACH_SHARE = 10
LEAST_OUT_OF_REACH_SECONDS = 0.5
"""The kernel counts from when it first sent again, 0.2 s after the packet itself, and sends once more 0.4 s later: two
packets in a row may get lost.
"""
EXECUTOR_WATCH_SECONDS = 1.0
GIVEN_UP_SECONDS = 3.0
"""An executor that stays out of reach for so long is replaced, while others can be reached: regions would wait for
slots there until somebody outside finds its node lost.
"""
LATE_WORD_SECONDS = 30.0
"""So long after a slot's end, the word that its executor is lost is about the same event."""
DEPLOY_PATIENCE = 24
"""While a slot restores its state its loop does not run: it may be silent for so many times the heartbeat timeout, from
one piece that it reads to the next.
"""

RegionFailed = Callable[[RegionShell, SlotConnection, str, str], None]
"""The region, the slot that failed, the kind of failure, and what there is to say about it."""


def out_of_reach(heartbeat_timeout: float) -> float:
    """After how many seconds without an acknowledgement a slot's machine is given up.

    Much sooner than a slot that says nothing: it may hang or have a long call in hand, while machines answer at once.
    """
    return max(heartbeat_timeout / OUT_OF_REACH_SHARE, LEAST_OUT_OF_REACH_SECONDS)


class SlotWatch:
    def __init__(
        self,
        regions: Mapping[int, RegionShell],
        launcher: SlotLauncher,
        settings: JobSettings,
        events: JobEvents,
        clock: Callable[[], float],
        region_failed: RegionFailed,
    ) -> None:
        self._regions = regions
        self._launcher = launcher
        self._settings = settings
        self._events = events
        self._clock = clock
        self._region_failed = region_failed
        self._executors: list[ExecutorInfo] = []
        """Those that may be used, as last seen."""
        self._fenced: set[str] = set()
        self._lost_slots: dict[str, dict[int, float]] = defaultdict(dict)
        """By executor: regions that lost a slot there, and when; somebody may yet say that the executor is lost."""
        self._out_of_reach: dict[str, float] = {}
        """By executor: when a slot there could not be reached any more."""

    async def heartbeats(self) -> None:
        looked = time.monotonic()
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            now = time.monotonic()
            self._leave_out(now - looked - WATCH_SECONDS, now)
            looked = now
            for shell in self._regions.values():
                if shell.run.state in ACTIVE:
                    self._check_heartbeats(shell, now)
                    _ping(shell, now)

    def _leave_out(self, stood_still: float, now: float) -> None:
        """For so long this process did not run: perhaps the whole machine was paused, and no slot could say a word."""
        if stood_still > WATCH_SECONDS:
            for shell in self._regions.values():
                for connection in shell.connections.values():
                    connection.last_heard = min(now, connection.last_heard + stood_still)

    async def executors(self) -> None:
        while True:
            await self._look_at_executors()
            self._give_up_unreachable(time.monotonic())
            await asyncio.sleep(EXECUTOR_WATCH_SECONDS)

    async def _look_at_executors(self) -> None:
        try:
            found = await asyncio.to_thread(self._launcher.executors)
        except Exception as error:
            log.warning("the executors are not known now: %s", error)
            return
        if found != self._executors:
            self._executors = found
            self._events.executors_changed(found)

    async def knows(self, executor: str) -> bool:
        """Whether slots are or were there lately, or could be placed there. Spark is asked if nobody else knows."""
        if executor in self._lost_slots or any(
            connection.hello.executor == executor
            for shell in self._regions.values()
            for connection in shell.connections.values()
        ):
            return True
        if not self._lists(executor):
            await self._look_at_executors()  # it may have come since the last look
        return self._lists(executor)

    def _lists(self, executor: str) -> bool:
        return any(known.id == executor for known in self._executors)

    def slot_ended(self, shell: RegionShell, connection: SlotConnection) -> None:
        lost = shell.run.accepts(connection.attempt) and shell.run.state in ACTIVE
        if lost:
            self._lost_slots[connection.hello.executor][connection.region] = self._clock()
            if connection.end == UNREACHABLE:
                self._out_of_reach[connection.hello.executor] = time.monotonic()
        self._launcher.slot_ended(connection.region, connection.attempt, connection.slot, lost)

    def executor_lost(self, executor: str, reason: str, message: str) -> list[int]:
        """Somebody outside saw an executor die: fence it, and restart the regions that had slots there.

        Only for one that this driver `knows`: what is fenced is never used again, whoever gets the name later.
        Returns those, also the ones whose restart is under way because their slots' connections broke before. A region
        that has finished is not among them.
        """
        there = [
            (shell, connection)
            for shell in self._regions.values()
            for connection in shell.connections.values()
            if connection.hello.executor == executor and shell.run.accepts(connection.attempt)
        ]
        restarting = {shell.run.region for shell, _ in there if shell.run.state in ACTIVE}
        for shell, connection in there:
            connection.hang_up()
            self._region_failed(shell, connection, reason, message or f"executor {executor} is lost")
        if self._launcher.replace_executor(executor):
            self._fenced.add(executor)
        recent = self._clock() - LATE_WORD_SECONDS
        before = {region for region, lost in self._lost_slots.pop(executor, {}).items() if lost > recent}
        return sorted(restarting | before)

    def _give_up_unreachable(self, now: float) -> None:
        """Where nobody is heard of any more, it is rather this driver that is cut off, and replaces no one."""
        heard: dict[str, float] = defaultdict(float)
        for shell in self._regions.values():
            for connection in shell.connections.values():
                heard[connection.hello.executor] = max(heard[connection.hello.executor], connection.last_heard)
        for executor, since in list(self._out_of_reach.items()):
            others = max((moment for name, moment in heard.items() if name != executor), default=0.0)
            if heard[executor] > since:
                del self._out_of_reach[executor]
            elif now - since > GIVEN_UP_SECONDS and others > since + GIVEN_UP_SECONDS / 2:
                del self._out_of_reach[executor]
                what = f"executor {executor} has been out of reach for {now - since:.0f} s"
                self.executor_lost(executor, "NodeLost", what)

    def is_fenced(self, executor: str) -> bool:
        """Whether it was given up. Spark may place a slot there all the same, as long as it has not ended it."""
        return executor in self._fenced

    def is_silent(self, executor: str) -> bool:
        """Whether no slot of the executor has been heard of for two heartbeats."""
        limit = time.monotonic() - 2 * self._settings.heartbeat_seconds - 0.5
        heard = [
            connection.last_heard
            for shell in self._regions.values()
            for connection in shell.connections.values()
            if connection.hello.executor == executor
        ]
        return bool(heard) and max(heard) < limit

    def _check_heartbeats(self, shell: RegionShell, now: float) -> None:
        patience = 1 if shell.run.state is RegionState.RUNNING else DEPLOY_PATIENCE
        limit = self._settings.heartbeat_timeout * patience
        for connection in list(shell.connections.values()):
            if now - connection.last_heard > limit:
                self.slot_ended(shell, connection)
                connection.hang_up()
                self._region_failed(shell, connection, "HeartbeatTimeout", _silence(connection, limit))


def _ping(shell: RegionShell, now: float) -> None:
    """So that there is always something to acknowledge."""
    for connection in shell.connections.values():
        if now - connection.last_heard < MOST_PINGS_SECONDS:
            connection.send(Ping())


def _silence(connection: SlotConnection, seconds: float) -> str:
    return (
        f"{connection} has said nothing for {seconds:g} s: it hangs, its node has too little CPU, or a single call of "
        "one of the pipeline's functions takes longer than that. If such calls are meant to take so long, raise "
        "recovery.heartbeatTimeout"
    )
