"""One queue for all jobs: no key twice, no key worked on twice at a time, failures retried with a backoff."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 0.2
LAST_RETRY_SECONDS = 60.0
MOST_DOUBLINGS = 10
"""Of the wait between retries, which is at its longest long before; the power would outgrow a float some day."""

Work = Callable[[str], Awaitable[float | None]]
"""Works on a key, and says after how many seconds it should be looked at again; None for not on its own."""

OnFailure = Callable[[str, Exception], None]


class KeyedQueue:
    def __init__(self, work: Work, *, on_failure: OnFailure) -> None:
        self._work = work
        self._on_failure = on_failure
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._queued: set[str] = set()
        self._working: set[str] = set()
        self._again: set[str] = set()
        """Asked for while being worked on: queued once more when that is done."""
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._queued)

    def add(self, key: str) -> None:
        self._cancel_timer(key)
        if key in self._working:
            self._again.add(key)
        elif key not in self._queued:
            self._queued.add(key)
            self._ready.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Later, unless an earlier time is set already."""
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if key in self._queued or (timer is not None and timer.when() <= loop.time() + seconds):
            return
        self._cancel_timer(key)
        self._timers[key] = loop.call_later(seconds, self.add, key)

    def forget(self, key: str) -> None:
        """The job is gone: no timer and no memory of failures remain."""
        self._cancel_timer(key)
        self._failures.pop(key, None)

    async def run(self, workers: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._work_forever())

    async def _work_forever(self) -> None:
        while True:
            key = await self._ready.get()
            self._queued.discard(key)
            self._working.add(key)
            try:
                await self._work_once(key)
            finally:
                self._working.discard(key)
                if key in self._again:
                    self._again.discard(key)
                    self.add(key)

    async def _work_once(self, key: str) -> None:
        try:
            look_again_in = await self._work(key)
        except Exception as error:  # one job's trouble must not stop the others
            self._on_failure(key, error)
            self.add_after(key, self._next_retry(key))
            return
        self._failures.pop(key, None)
        if look_again_in is not None:
            self.add_after(key, look_again_in)

    def _next_retry(self, key: str) -> float:
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        return min(FIRST_RETRY_SECONDS * 2.0 ** min(failures, MOST_DOUBLINGS), LAST_RETRY_SECONDS)

    def _cancel_timer(self, key: str) -> None:
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
