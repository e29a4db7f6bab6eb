"""`make chaos`, loops: two gigabytes on their way round during one checkpoint, in a slot of half a gigabyte."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from loop_saboteur import logged_bytes

from snapshot_engine.api import Count, Environment, col
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline, slot_pids

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

SEEDS = 250
GROWTH = 100
PAYLOAD = b"x" * 1_000
IN_FLIGHT = SEEDS * GROWTH * GROWTH * len(PAYLOAD)
BUDGET = 512 << 20
SCHEMA = "id long, left long, payload binary"


def grow(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A hundred of each; the last generation is heavy."""
    ids = np.repeat(batch["id"].to_numpy(), GROWTH) * GROWTH + np.tile(np.arange(GROWTH), batch.num_rows)
    left = np.repeat(batch["left"].to_numpy(), GROWTH) - 1
    payload = [PAYLOAD if each == 0 else b"" for each in left.tolist()]
    return pa.RecordBatch.from_pydict({"id": ids, "left": left, "payload": pa.array(payload, pa.binary())})


def body(rows):
    return rows.where(col("left") > 0).map_in_arrow(grow, schema=SCHEMA), rows.where(col("left") == 0)


class Logs(JobEvents):
    largest = 0

    def checkpoint_completed(self, manifest, *more) -> None:
        self.largest = max(self.largest, logged_bytes(manifest))


def test_two_gigabytes_on_their_way_round_in_half_a_gigabyte(tmp_path: Path) -> None:
    sink, logs, peaks = CollectSink(tmp_path / "out"), Logs(), [0]
    columns = {
        "id": lambda offsets: offsets.astype(np.int64),
        "left": lambda offsets: np.full(len(offsets), 2),
        "payload": lambda offsets: pa.array([b""] * len(offsets), pa.binary()),
    }

    def pipeline(env: Environment) -> None:
        seeds = env.from_source(GeneratorSource(columns, count=SEEDS), uid="seeds")
        leaving = seeds.iterate(body, uid="loop").select("id", one=col("left") * 0)
        leaving.key_by("one").aggregate(rows=Count()).uid("count").sink_to(sink, uid="out")

    async def watch(job: RunningJob) -> None:
        while True:
            peaks.extend(peak_memory(pid) for pid in slot_pids(job))
            await asyncio.sleep(0.2)

    result = run_pipeline(
        pipeline, storage=tmp_path / "ck", interval=1.0, retained=1, observers=(logs,), meanwhile=watch
    )
    print(f"largest log {logs.largest / 1e9:.2f} GB, most memory {max(peaks) / 2**20:.0f} MB")
    assert result.outcome is Outcome.FINISHED
    assert max(row["rows"] for row in sink.read_committed()) == SEEDS * GROWTH * GROWTH
    assert logs.largest >= 2e9
    assert max(peaks) <= BUDGET


def peak_memory(pid: int) -> int:
    """The most that the process ever had, shared libraries included."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)
