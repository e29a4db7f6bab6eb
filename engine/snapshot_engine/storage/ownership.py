"""Who owns a job's storage. One driver at a time, by compare-and-swap on `current.json`.

A driver acquires the storage by swapping in the next generation. From then on every change it makes is a swap
against the version it wrote last, so the first swap after another driver has acquired the storage fails: that
is the moment at which a driver that was stopped and resumed learns that it has been replaced, before it
commits or deletes anything.

When the store does not say whether a swap took place, it is read back until that is known. A write that was
delayed somewhere may even arrive later; repeating the same swap with the same bytes is right in every case,
since exactly one of the two can match the expected version, and each is recognised by its random revision.
"""

from __future__ import annotations

import errno
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from snapshot_engine.storage.blobs import BlobStore, OutcomeUnknown, SwapConflict
from snapshot_engine.storage.current import Current
from snapshot_engine.storage.errors import (
    BelongsToAnotherJob,
    OwnershipLost,
    StorageError,
    StorageUnavailable,
)
from snapshot_engine.storage.layout import Layout

T = TypeVar("T")

_ACQUIRE_TRIES = 50
_LONGEST_PAUSE = 5.0
_LASTING = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}
"""What does not go away by asking again."""


class Ownership:
    def __init__(
        self,
        blobs: BlobStore,
        where: Layout,
        *,
        patience: float = 300.0,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`patience`: for how many seconds a store that does not answer is asked again."""
        self._blobs = blobs
        self._path = where.current
        self._patience = patience
        self._sleep = sleep
        self._clock = clock
        self._lock = threading.RLock()
        self._current: Current | None = None
        self._version: str | None = None

    @property
    def current(self) -> Current:
        """What this driver wrote last. Only after `acquire`."""
        if self._current is None:
            raise StorageError("the storage has not been acquired: call acquire first")
        return self._current

    @property
    def owned(self) -> bool:
        return self._current is not None

    def read(self) -> Current | None:
        """What the storage holds now, whoever wrote it."""
        found = self._blobs.read_versioned(self._path)
        return self._decode(found) if found else None

    def acquire(self, job_uid: str, take_over: bool, reserve: int, driver: int | None = None) -> Current:
        """Become the owner, with the next generation and `reserve` checkpoint ids.

        Raises BelongsToAnotherJob if another job's state is there, unless `take_over`; OwnershipLost if drivers are
        numbered and one of the same job with this `driver` number or a higher one has been here: a driver that starts
        late must not take the storage from its successor.
        """
        with self._lock:
            for _ in range(_ACQUIRE_TRIES):
                found = self._answer(lambda: self._blobs.read_versioned(self._path))
                previous = self._decode(found) if found else None
                if previous and previous.job_uid != job_uid and not take_over:
                    there = [ref.checkpoint for ref in previous.retained]
                    raise BelongsToAnotherJob(self._where(found), previous.job_uid, job_uid, there)
                if previous and driver is not None and previous.job_uid == job_uid and (previous.driver or 0) >= driver:
                    raise OwnershipLost(driver, previous.driver or 0, self._where(found))
                wanted = _next_owner(previous, job_uid, reserve, driver)
                if self._swap(wanted, found[1] if found else None):
                    return wanted
            raise StorageError(f"{self._where()} changed hands {_ACQUIRE_TRIES} times while it was being acquired")

    def update(self, change: Callable[[Current], Current]) -> Current:
        """Swap in `change(current)`. Raises OwnershipLost if another driver has acquired the storage.

        An OSError means that the change has not taken place.
        """
        with self._lock:
            while True:
                wanted = replace(change(self.current), revision=uuid.uuid4().hex)
                if self._swap(wanted, self._version):
                    return wanted
                self._reread()

    def verify(self) -> None:
        """Raises OwnershipLost if another driver has acquired the storage in the meantime."""
        with self._lock:
            self._reread()

    def _reread(self) -> None:
        mine = self.current.generation
        found = self._answer(lambda: self._blobs.read_versioned(self._path))
        if found is None:
            raise StorageError(f"{self._where()} has been deleted while this job was running")
        current = self._decode(found)
        if current.generation != mine:
            raise OwnershipLost(mine, current.generation, self._where(found))
        self._current, self._version = current, found[1]

    def _swap(self, wanted: Current, expected: str | None) -> bool:
        """Whether `wanted` now holds. False: something else does."""
        data = wanted.encode()
        begun = self._clock()
        pause = 0.05
        while True:
            try:
                version = self._blobs.swap(self._path, data, expected)
                break
            except (SwapConflict, OutcomeUnknown) as error:
                found = self._answer(lambda: self._blobs.read_versioned(self._path))
                if found and self._decode(found).revision == wanted.revision:
                    version = found[1]
                    break
                if isinstance(error, SwapConflict) or (found[1] if found else None) != expected:
                    return False
                pause = self._wait(begun, pause, error)
        self._current, self._version = wanted, version
        return True

    def _answer(self, ask: Callable[[], T]) -> T:
        """What the store says, asked again while it cannot be reached."""
        begun = self._clock()
        pause = 0.05
        while True:
            try:
                return ask()
            except (OSError, OutcomeUnknown) as error:
                if getattr(error, "errno", None) in _LASTING:
                    raise
                pause = self._wait(begun, pause, error)

    def _wait(self, begun: float, pause: float, error: Exception) -> float:
        if self._clock() - begun > self._patience:
            raise StorageUnavailable(
                f"{self._where()} has not answered for {self._patience:.0f} s ({error}): it is not known "
                "what it holds, so this driver must exit; the next one reads it and goes on from there"
            ) from error
        self._sleep(pause)
        return min(pause * 2, _LONGEST_PAUSE)

    def _decode(self, found: tuple[bytes, str]) -> Current:
        return Current.decode(found[0], self._where(found))

    def _where(self, found: tuple[bytes, str] | None = None) -> str:
        return self._blobs.whereabouts(self._path, found[1] if found else None)


def _next_owner(previous: Current | None, job_uid: str, reserve: int, driver: int | None) -> Current:
    revision = uuid.uuid4().hex
    if previous is None:
        return Current(
            job_uid, generation=1, revision=revision, reserved_until=1 + reserve, driver=driver, lineage=revision
        )
    generation = previous.generation + 1
    if previous.lineage is None:
        previous = replace(previous, lineage=revision, lineage_since=generation)
    return replace(
        previous,
        job_uid=job_uid,
        generation=generation,
        revision=revision,
        reserved_until=previous.reserved_until + reserve,
        driver=driver,
    )
