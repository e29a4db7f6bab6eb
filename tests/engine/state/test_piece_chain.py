"""Which pieces a snapshot refers to: only those that nobody can take away."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from snapshot_engine.operators.operator import OperatorContext
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.state.piece_chain import LONGEST_CHAIN, PieceChain


@dataclass
class Written:
    """Names every piece by what was written; all are as large as their table has rows."""

    inline: bool = False
    shares: bool = True
    """False for a savepoint."""
    numbers: Any = field(default_factory=itertools.count)

    def write_table(self, name: str, table: pa.Table, *, shared: bool = False) -> PieceHandle:
        content = b"" if self.inline else None
        return PieceHandle(
            f"{next(self.numbers)}-{name}", table.num_rows, "", shared and self.shares and not self.inline, content
        )

    def write_bytes(self, name: str, data: bytes, *, shared: bool = False) -> PieceHandle:
        raise AssertionError

    def read_table(self, handle: PieceHandle) -> pa.Table:
        raise AssertionError

    def read_bytes(self, handle: PieceHandle) -> bytes:
        raise AssertionError


class Job:
    def __init__(
        self,
        restored: list[OperatorState] | None = None,
        *,
        incremental: bool = True,
        rescaled: bool = False,
        store: Written | None = None,
    ) -> None:
        self.store = store or Written()
        context = OperatorContext(
            uid="op",
            name="op",
            subtask=0,
            parallelism=1,
            key_groups=8,
            attempt=(1, 1),
            restored=restored or [],
            rescaled=rescaled,
            reader=self.store,
            clock=lambda: 0,
            incremental=incremental,
        )
        self.chain = PieceChain(context, "test", {"key": "int64"})

    def snapshot(self, checkpoint: int, rows: int = 10, tables: int = 1) -> OperatorState:
        plan = self.chain.plan()
        names = [f"t{number}" for number in range(tables)]
        pending = self.chain.snapshot(
            checkpoint, plan, {"after": plan.after}, lambda: [(name, pa.table({"n": range(rows)})) for name in names]
        )
        return pending.write(self.store)


def paths(state: OperatorState) -> list[str]:
    return [piece.path for piece in state.pieces]


def test_without_a_complete_checkpoint_everything_is_written_again() -> None:
    job = Job()
    assert paths(job.snapshot(1)) == ["0-t0-base"]
    assert paths(job.snapshot(2)) == ["1-t0-base"]


def test_after_completion_only_changes_are_written() -> None:
    job = Job()
    job.snapshot(1, rows=100)
    job.chain.completed(1)
    second = job.snapshot(2)
    assert paths(second) == ["0-t0-base", "1-t0-delta"]
    assert all(piece.shared for piece in second.pieces)
    assert second.meta["after"] == 1


def test_a_pending_checkpoint_is_never_referred_to() -> None:
    job = Job()
    job.snapshot(1, rows=100)
    job.chain.completed(1)
    second, third = job.snapshot(2), job.snapshot(3)
    assert paths(third) == ["0-t0-base", "2-t0-delta"]
    assert second.meta["after"] == third.meta["after"] == 1
    job.chain.completed(3)
    assert paths(job.snapshot(4)) == ["0-t0-base", "2-t0-delta", "3-t0-delta"]


def test_an_aborted_checkpoint_is_as_if_it_had_not_been() -> None:
    job = Job()
    job.snapshot(1, rows=100)
    job.chain.completed(1)
    job.snapshot(2)
    job.chain.aborted(2)
    third = job.snapshot(3)
    assert paths(third) == ["0-t0-base", "2-t0-delta"]
    assert third.meta["after"] == 1


def test_a_completion_that_comes_late_changes_nothing() -> None:
    job = Job()
    job.snapshot(1, rows=100)
    job.snapshot(2, rows=100)
    job.chain.completed(2)
    job.chain.completed(1)
    assert paths(job.snapshot(3)) == ["1-t0-base", "2-t0-delta"]


def test_a_snapshot_that_was_not_written_is_not_referred_to() -> None:
    job = Job()
    plan = job.chain.plan()
    job.chain.snapshot(1, plan, {}, list)
    job.chain.completed(1)
    assert paths(job.snapshot(2)) == ["0-t0-base"]


def test_a_long_chain_ends_with_a_new_base() -> None:
    job = Job()
    job.snapshot(1, rows=10_000)
    job.chain.completed(1)
    for checkpoint in range(2, 2 + LONGEST_CHAIN):
        state = job.snapshot(checkpoint, rows=1)
        assert len(state.pieces) == checkpoint
        job.chain.completed(checkpoint)
    assert len(job.snapshot(100, rows=10_000).pieces) == 1


def test_deltas_that_outweigh_the_base_end_with_a_new_base() -> None:
    job = Job()
    job.snapshot(1, rows=100)
    job.chain.completed(1)
    assert len(job.snapshot(2, rows=101).pieces) == 2
    job.chain.completed(2)
    assert paths(job.snapshot(3)) == ["2-t0-base"]


def test_full_snapshots_share_nothing() -> None:
    job = Job(incremental=False)
    job.snapshot(1)
    job.chain.completed(1)
    second = job.snapshot(2)
    assert paths(second) == ["1-t0-base"]
    assert not any(piece.shared for piece in second.pieces)


def test_a_restored_chain_goes_on() -> None:
    job = Job()
    job.snapshot(1, rows=100, tables=2)
    job.chain.completed(1)
    state = OperatorState.from_json(job.snapshot(2, tables=1).to_json())
    again = Job([state], store=job.store)
    third = again.snapshot(3)
    assert paths(third) == ["0-t0-base", "1-t1-base", "2-t0-delta", "3-t0-delta"]
    assert third.meta["after"] == 0
    assert third.meta["links"] == [2, 1, 1]


def test_pieces_inside_the_manifest_may_be_referred_to() -> None:
    job = Job(store=Written(inline=True))
    job.snapshot(1, rows=100)
    job.chain.completed(1)
    assert len(job.snapshot(2).pieces) == 2
    again = Job([job.snapshot(3)], store=job.store)
    assert len(again.snapshot(4).pieces) == 3


def test_a_savepoint_is_not_built_upon() -> None:
    state = Job().snapshot(1, rows=100)
    savepoint = replace(state, pieces=tuple(replace(piece, shared=False) for piece in state.pieces))
    assert len(Job([savepoint]).snapshot(2).pieces) == 1


def test_a_savepoint_taken_while_running_is_not_built_upon() -> None:
    job = Job()
    job.snapshot(1, rows=100)
    job.chain.completed(1)
    store, job.store = job.store, Written(shares=False)
    assert paths(job.snapshot(2)) == ["0-t0-base", "0-t0-delta"]
    job.chain.completed(2)
    job.store = store
    third = job.snapshot(3)
    assert paths(third) == ["0-t0-base", "1-t0-delta"]
    assert third.meta["after"] == 1


def test_after_a_change_of_parallelism_everything_is_written_again() -> None:
    state = Job().snapshot(1, rows=100)
    assert len(Job([state], rescaled=True).snapshot(2).pieces) == 1
    assert len(Job([state, state], rescaled=True).snapshot(2).pieces) == 1
