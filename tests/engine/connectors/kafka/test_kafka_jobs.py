"""From topic to topic with slots that are killed."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from snapshot_engine.api import Environment
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.kafka_sink import KafkaSink
from snapshot_engine.connectors.kafka_source import KafkaSource
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

pytestmark = pytest.mark.kafka

NUMBERS = pa.schema({"n": pa.int64()})
COUNT = 3_000


def slowly(row: Any) -> Any:
    import time

    time.sleep(0.0005)
    return row


def test_every_record_arrives_once_whatever_is_killed(topic, tmp_path: Path) -> None:
    source, target = topic(3), topic(2)
    for partition in range(3):
        source.write(partition, *({"n": number} for number in range(partition, COUNT, 3)))

    def pipeline(env: Environment) -> None:
        rows = env.from_source(KafkaSource(source.servers, source.name, NUMBERS, bounded=True), uid="in")
        mapped = rows.map(slowly, schema=NUMBERS).uid("slowly")
        mapped.sink_to(KafkaSink(target.servers, target.name, staging=tmp_path / "staging", key="n"), uid="out")

    async def kill_now_and_then(job: RunningJob) -> None:
        choose = random.Random(1)
        for _ in range(5):
            await asyncio.sleep(0.4)
            kill_a_slot(job, choose)

    result = run_pipeline(pipeline, storage=tmp_path / "checkpoints", parallelism=2, meanwhile=kill_now_and_then)
    assert result.outcome is Outcome.FINISHED, result
    assert sorted(value["n"] for _, value in target.read_committed()) == list(range(COUNT))


def test_a_job_that_reads_another_topic_now_ends_at_once_and_says_why(topic, tmp_path: Path) -> None:
    former, now = topic(1), topic(1)
    former.write(0, *({"n": number} for number in range(10)))
    now.write(0, *({"n": number} for number in range(100, 120)))
    sink = CollectSink(tmp_path / "out")

    def reading(source: Any) -> Any:
        def pipeline(env: Environment) -> None:
            env.from_source(KafkaSource(source.servers, source.name, NUMBERS), uid="in").sink_to(sink, uid="out")

        return pipeline

    async def stop_when_something_is_there(job: RunningJob) -> None:
        while not list(sink.folder.glob("*.arrow")):
            await asyncio.sleep(0.05)
        job.master.stop()

    stopped = run_pipeline(reading(former), storage=tmp_path / "checkpoints", meanwhile=stop_when_something_is_there)
    assert stopped.outcome is Outcome.STOPPED, stopped
    result = run_pipeline(reading(now), storage=tmp_path / "checkpoints")
    assert result.outcome is Outcome.FAILED
    assert f"position in '{former.name}/000000', but the source reads topic '{now.name}' now" in str(result)
    assert max(row["n"] for row in sink.read_committed()) < 10
