"""A connected job in which slots of every region are killed: exact output, and only those restart that have to."""

from __future__ import annotations

import sys
from pathlib import Path

import connected_job
import pytest
import verifying_job
from connected_job import Killer, connected
from verifying_job import KEYS, committed, expected

from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.runtime.forked import ship_by_value
from snapshot_engine.runtime.launcher import SlotLauncher
from snapshot_engine.testing import Outcome, run_pipeline


def run(tmp_path: Path, exchange: str, kills: int, count: int, rate: float, launcher: SlotLauncher | None) -> Killer:
    ship_by_value(sys.modules["verifying_job"])
    killer = Killer(Exchange(exchange), kills, tmp_path / "hurry")
    result = run_pipeline(
        connected,
        storage=tmp_path / "ck",
        parallelism=2,
        args={
            "exchange": exchange,
            "out": str(tmp_path / "out"),
            "hurry": str(tmp_path / "hurry"),
            "count": count,
            "rate": rate,
        },
        interval=0.1,
        launcher=launcher,
        meanwhile=killer,
        heartbeat_timeout=60.0,  # a busy machine must not add failures of its own: who restarts is what is looked at
    )
    assert result.outcome is Outcome.FINISHED, result.message
    assert committed(tmp_path / "out").equals(expected(count))
    return killer


@pytest.mark.slow
@pytest.mark.parametrize("exchange", ["committed", "durable"])
def test_a_few_kills(tmp_path: Path, exchange: str) -> None:
    killer = run(tmp_path, exchange, kills=6, count=4_000 * KEYS, rate=1_000, launcher=None)
    assert killer.done >= 6
    assert killer.wrong == []


@pytest.fixture(scope="module")
def spark():
    from snapshot_engine.runtime.spark import SparkLauncher, embedded_context
    from snapshot_engine.runtime.spark import ship_by_value as ship_by_spark

    ship_by_spark(verifying_job)
    ship_by_spark(connected_job)
    launcher = SparkLauncher(embedded_context("regions", 8, {}))
    yield launcher
    launcher.close()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("exchange", ["committed", "durable"])
def test_sixty_kills_over_all_regions(tmp_path: Path, exchange: str, spark: SlotLauncher) -> None:
    # The source lasts for thirteen minutes if nobody hurries it: on a busy machine 60 kills have taken more than six.
    killer = run(tmp_path, exchange, kills=60, count=24_000 * KEYS, rate=2_000, launcher=spark)
    in_order = sorted(killer.seconds)
    print(
        f"{killer.done} kills, {dict(killer.second)}; until a checkpoint had completed: median "
        f"{in_order[len(in_order) // 2]:.2f} s, longest {in_order[-1]:.2f} s"
    )
    assert killer.done >= 60
    assert min(killer.second["while it restarts"], killer.second["while it catches up"]) >= 4
    assert killer.wrong == []
