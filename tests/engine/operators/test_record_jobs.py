"""Operators on records in whole jobs: their state is exact after slots were killed and the parallelism changed."""

from __future__ import annotations

import asyncio
import datetime as dt
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from snapshot_engine.api import (
    KeyedProcessFunction,
    ListState,
    MapState,
    ProcessWindowFunction,
    Session,
    Tumbling,
    ValueState,
)
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.generator import GeneratorSource
from snapshot_engine.testing import Outcome, RunningJob, kill_a_slot, run_pipeline

COUNT = 12_000
KEYS = 40


def numbers() -> GeneratorSource:
    """One row per millisecond of event time; keys in turn."""
    columns = {
        "n": lambda offsets: offsets.astype(np.int64),
        "group": lambda offsets: (offsets % KEYS).astype(np.int64),
        "ts": lambda offsets: offsets.astype(np.int64),
    }
    return GeneratorSource(columns, count=COUNT, rate=6_000, splits=4)


class Collecting(KeyedProcessFunction):
    """Gives back the numbers of each second of event time when it is over, out of every kind of state."""

    def open(self, context: Any) -> None:
        self.numbers = context.state(ListState("numbers", int))
        self.by_second = context.state(MapState("by second", int, int))
        self.calls = context.state(ValueState("calls", int, default=0))

    def process(self, record: Any, context: Any) -> None:
        self.numbers.add(record.n)
        second = record.ts // 1000
        self.by_second[second] = self.by_second.get(second, 0) + 1
        context.timers.register_event_time(second * 1000 + 999)

    def on_timer(self, timestamp: int, context: Any) -> Any:
        second = timestamp // 1000
        mine = [n for n in self.numbers.get() if n // 1000 == second]
        self.numbers.update([n for n in self.numbers.get() if n // 1000 != second])
        self.calls.update(self.calls.value() + 1)
        yield {
            "key": context.current_key,
            "second": second,
            "numbers": mine,
            "counted": self.by_second[second],
            "calls": self.calls.value(),
        }
        self.by_second.remove(second)


class Numbers(ProcessWindowFunction):
    def process(self, key: Any, context: Any, records: Any) -> Any:
        yield {"key": key, "start": context.window.start, "numbers": [record.n for record in records]}


def jobs(folder: Path) -> Any:
    def pipeline(env: Any) -> None:
        stream = env.from_source(numbers(), uid="numbers").with_watermark("ts", "50ms")
        counted = stream.map(lambda row: (row.group, 1, row.ts), schema="group long, seen long, ts long").uid("ones")
        counted.key_by("group").reduce(lambda a, b: (a.group, a.seen + b.seen, b.ts)).uid("reduced").sink_to(
            CollectSink(folder / "reduced"), uid="reduced-out"
        )
        by_function = stream.key_by(lambda row: ("group", row.group))
        by_function.process(Collecting()).uid("collected").sink_to(
            CollectSink(folder / "collected"), uid="collected-out"
        )
        for name, window in (("tumbling", Tumbling("700ms")), ("session", Session(f"{KEYS + 1}ms"))):
            stream.key_by("group").window(window).process(Numbers()).uid(name).sink_to(
                CollectSink(folder / name), uid=f"{name}-out"
            )

    return pipeline


def check(folder: Path) -> None:
    """Every record is in every result exactly once."""
    reduced = Counter((row["group"], row["seen"]) for row in CollectSink(folder / "reduced").read_committed())
    assert reduced == Counter((key, seen) for key in range(KEYS) for seen in range(1, COUNT // KEYS + 1))

    calls = defaultdict(list)
    seen: list[int] = []
    for row in CollectSink(folder / "collected").read_committed():
        assert row["key"] == ("group", row["numbers"][0] % KEYS)
        assert row["counted"] == len(row["numbers"])
        calls[row["key"]].append(row["calls"])
        seen += row["numbers"]
    assert sorted(seen) == list(range(COUNT))
    assert all(sorted(numbers) == list(range(1, COUNT // 1000 + 1)) for numbers in calls.values())

    for name in ("tumbling", "session"):
        rows = CollectSink(folder / name).read_committed()
        assert sorted(n for row in rows for n in row["numbers"]) == list(range(COUNT))
        assert len({(row["key"], row["start"]) for row in rows}) == len(rows)
    assert len(CollectSink(folder / "session").read_committed()) == KEYS


@pytest.mark.parametrize("incremental", [False, True], ids=["full", "incremental"])
def test_killed_slots_change_nothing_in_the_results(tmp_path: Path, incremental: bool) -> None:
    rng = random.Random(7)
    kills = []

    async def kill_now_and_then(job: RunningJob) -> None:
        while len(kills) < 3:
            await asyncio.sleep(rng.uniform(0.3, 0.6))
            if job.board.status.checkpoint.completed and (pid := kill_a_slot(job, rng)):
                kills.append(pid)

    result = run_pipeline(
        jobs(tmp_path),
        storage=tmp_path / "ck",
        parallelism=2,
        interval=0.05,
        incremental=incremental,
        meanwhile=kill_now_and_then,
    )
    assert result.outcome is Outcome.FINISHED
    assert len(kills) == 3
    check(tmp_path)


def test_a_change_of_parallelism_moves_state_timers_and_windows_with_their_keys(tmp_path: Path) -> None:
    async def stop_soon(job: RunningJob) -> None:
        while job.board.status.checkpoint.completed < 4:
            await asyncio.sleep(0.02)
        job.master.stop(None)

    for parallelism, meanwhile in ((1, stop_soon), (3, stop_soon), (2, None)):
        result = run_pipeline(
            jobs(tmp_path), storage=tmp_path / "ck", parallelism=parallelism, incremental=True, meanwhile=meanwhile
        )
    assert result.outcome is Outcome.FINISHED
    check(tmp_path)


@dataclass
class Item:
    name: str
    bought: dt.datetime


@dataclass
class Cart:
    items: list[Item] = field(default_factory=list)


class Carts(KeyedProcessFunction):
    def open(self, context: Any) -> None:
        self.cart = context.state(ValueState("cart", Cart))

    def process(self, record: Any, context: Any) -> Any:
        cart = self.cart.value() or Cart()
        cart.items.append(Item("x", dt.datetime(2024, 1, 1)))
        self.cart.update(cart)
        yield (len(cart.items),)


def test_dataclasses_inside_of_dataclasses_are_state(tmp_path: Path) -> None:
    """Annotations are texts in this file, and the slots cannot import it."""
    sink = CollectSink(tmp_path / "out")

    def pipeline(env: Any) -> None:
        stream = env.from_source(GeneratorSource({"n": lambda n: n % 3}, count=300, splits=1), uid="numbers")
        stream.key_by("n").process(Carts(), schema="n bigint").uid("carts").sink_to(sink, uid="out")

    result = run_pipeline(pipeline, storage=tmp_path / "ck", interval=0.1)
    assert result.outcome is Outcome.FINISHED, result.message
    assert max(row["n"] for row in sink.read_committed()) == 100
