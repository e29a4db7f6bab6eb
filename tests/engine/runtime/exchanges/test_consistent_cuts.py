"""The test kit notices a checkpoint that is no consistent cut."""

from __future__ import annotations

import pytest

from snapshot_engine.consistent_cuts import ConsistentCuts, InconsistentCut, broken_channels
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.storage.manifest import Manifest, SubtaskSnapshot, VertexSnapshot


def manifest(sent: int, read: int) -> Manifest:
    """Two producers, one consumer; `sent` and `read` are of the second producer."""

    def subtask(uid: str, numbers: list[list[int]]) -> SubtaskSnapshot:
        return SubtaskSnapshot(Attempt(1, 1), (OperatorState(uid, "exchange-log", meta={"numbers": numbers}),))

    producers = {0: subtask("a->b.0/written", [[0, 7]]), 1: subtask("a->b.0/written", [[0, sent]])}
    consumer = {0: subtask("a->b.0/read", [[0, 7], [1, read]])}
    return Manifest(
        checkpoint=4,
        generation=1,
        job="test",
        job_uid="test",
        triggered_at=0.0,
        completed_at=1.0,
        key_groups=128,
        vertices={"a": VertexSnapshot(2, producers), "b": VertexSnapshot(1, consumer)},
    )


def test_ends_that_agree_are_a_cut() -> None:
    assert broken_channels(manifest(5, 5)) == []


def test_a_consumer_that_has_read_what_was_sent_behind_the_barrier_is_named() -> None:
    cuts = ConsistentCuts()
    cuts.checkpoint_completed(manifest(0, 1500))
    with pytest.raises(InconsistentCut, match="subtask 1 had sent 0 rows, of which subtask 0 had read 1500"):
        cuts.verify()
