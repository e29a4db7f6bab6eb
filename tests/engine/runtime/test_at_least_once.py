"""What at-least-once means: rows that overtake a barrier are in the snapshot, and come again after a restore."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.protocols import EndOfSplit
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

ROWS = {"fast": 3_000, "slow": 8}
FIRST = {"fast": 0, "slow": 1_000_000}
PAUSE_SECONDS = {"fast": 0.001, "slow": 0.25}


class Uneven:
    """One split of many rows, and one whose reader blocks its slot: barriers leave it a quarter of a second late."""

    bounded = True
    schema = pa.schema({"n": pa.int64()})

    def splits(self, parallelism: int) -> list[str]:
        return list(ROWS)

    def open(self, split: str, position: int | None) -> UnevenReader:
        return UnevenReader(split, position or 0)


class UnevenReader:
    def __init__(self, split: str, position: int) -> None:
        self.split = split
        self.next = position

    def read(self, max_rows: int) -> pa.RecordBatch:
        if self.next >= ROWS[self.split]:
            raise EndOfSplit
        time.sleep(PAUSE_SECONDS[self.split])
        self.next += 1
        return pa.RecordBatch.from_pydict({"n": [FIRST[self.split] + self.next - 1]}, Uneven.schema)

    def position(self) -> int:
        return self.next

    def lag(self) -> None:
        return None

    def close(self) -> None: ...


def times_committed(tmp_path: Path, mode: Mode) -> Counter[int]:
    """Run with one kill after the first checkpoint: how often each row came out."""
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Environment) -> None:
        env.from_source(Uneven(), uid="rows").rebalance().filter(lambda row: True).sink_to(sink, uid="out")

    async def kill_after_a_checkpoint(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 1:
            await asyncio.sleep(0.005)
        assert kill_a_slot(job, random.Random(1))

    result = run_pipeline(
        pipeline,
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.1,
        mode=mode,
        meanwhile=kill_after_a_checkpoint,
    )
    assert result.outcome is Outcome.FINISHED
    return Counter(row["n"] for row in sink.read_committed())


@pytest.mark.parametrize("mode", list(Mode))
def test_nothing_is_lost_and_only_at_least_once_doubles(tmp_path: Path, mode: Mode) -> None:
    times = times_committed(tmp_path, mode)
    assert times.keys() == {FIRST[split] + n for split, count in ROWS.items() for n in range(count)}
    doubled = {row for row, count in times.items() if count > 1}
    assert bool(doubled) == (mode is Mode.AT_LEAST_ONCE)
