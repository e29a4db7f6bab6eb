"""The lineage of prepared transactions: what a sink subtask has prepared and does not know to be committed.

Every snapshot lists all of it, not only what its own barrier prepared. So a transaction whose checkpoint was
aborted is committed by the next one that completes, and one whose commit was cut off by a crash is committed
after the restore. Committing is idempotent, so listing too much does no harm; listing too little loses
records.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lineage(Generic[T]):
    """One sink subtask's list. `restored` is what the restored snapshot listed: the driver has it committed
    again.
    """

    def __init__(self, restored: Iterable[T] = (), checkpoint: int = 0) -> None:
        self._prepared: list[tuple[int, T]] = [(checkpoint, committable) for committable in restored]

    def prepared(self, checkpoint: int, committables: Iterable[T]) -> None:
        """The barrier of `checkpoint` closed these transactions."""
        self._prepared.extend((checkpoint, committable) for committable in committables)

    def listed(self) -> list[T]:
        """What the snapshot must name, oldest first."""
        return [committable for _, committable in self._prepared]

    def completed(self, checkpoint: int) -> None:
        """All that was prepared up to `checkpoint` is committed. Not to be called for a running job's
        savepoint.
        """
        self._prepared = [(number, each) for number, each in self._prepared if number > checkpoint]

    def aborted(self, checkpoint: int) -> None:
        """Nothing is dropped: the records are in no later transaction, so the next completed one must commit
        it.
        """
