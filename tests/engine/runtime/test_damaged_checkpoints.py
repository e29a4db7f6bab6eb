"""Checkpoints that cannot be written, read, or taken over: reported, and never answered with an empty state."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from snapshot_engine.api import Count, Environment, Max, Sum, Tumbling
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.protocol.checkpoints import Abort
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.runtime.restore import UnmatchedState
from snapshot_engine.storage.errors import CorruptCheckpoint
from snapshot_engine.testing import Outcome, RunningJob, run_pipeline
from snapshot_engine.wire.status import ExitCode

KEYS = 5_000


def windows(env: Environment, out: str, rows: int = 400_000, rate: float = 100_000, **aggregates: object) -> None:
    (
        env.from_source(bids(keys=KEYS, count=rows, rate=rate, events_per_second=20_000), uid="bids")
        .with_watermark("ts", delay="1s")
        .key_by("auction")
        .window(Tumbling("60s"))
        .aggregate(**(aggregates or {"bids": Count(), "total": Sum("price")}))
        .uid("windows")
        .sink_to(CollectSink(out), uid="out")
    )


async def stop_once_there_is_state(job: RunningJob) -> None:
    while (latest := job.master.checkpoints.latest) is None or latest.size() < 60_000:
        await asyncio.sleep(0.05)
    job.master.stop()


def half_a_run(tmp_path: Path) -> None:
    def pipeline(env: Environment) -> None:
        windows(env, str(tmp_path / "out"), rate=10_000)

    run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=1, meanwhile=stop_once_there_is_state)


def pieces(tmp_path: Path) -> list[Path]:
    found = sorted((tmp_path / "ck").rglob("*.arrow"), key=lambda file: file.stat().st_mtime)
    assert found, "the test needs state that is large enough to be written to a file"
    return found


@pytest.mark.parametrize("damage", ["truncated", "altered", "deleted"])
def test_a_damaged_piece_is_reported_and_not_taken_for_empty_state(tmp_path: Path, damage: str) -> None:
    half_a_run(tmp_path)
    for piece in pieces(tmp_path):
        data = piece.read_bytes()
        if damage == "truncated":
            piece.write_bytes(data[: len(data) // 2])
        elif damage == "altered":
            piece.write_bytes(data[:-100] + bytes(100))
        else:
            piece.unlink()

    def pipeline(env: Environment) -> None:
        windows(env, str(tmp_path / "out"))

    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=1)
    assert result.outcome is Outcome.FAILED
    assert ".arrow is corrupt" in result.message
    assert result.exit_code is ExitCode.UNREADABLE_STATE
    assert not result.history, "it cannot be mended by restarts, and none was tried"


def test_a_damaged_piece_leads_back_to_an_older_checkpoint_if_that_is_allowed(tmp_path: Path) -> None:
    half_a_run(tmp_path)
    piece = pieces(tmp_path)[-1]
    piece.write_bytes(piece.read_bytes()[:100])
    starts = Starts()

    def pipeline(env: Environment) -> None:
        windows(env, str(tmp_path / "out"))

    damaged = int(next(part for part in piece.parts if part[0].isdigit() and "-" in part).split("-")[0])
    result = run_pipeline(
        pipeline, storage=tmp_path / "ck", parallelism=1, allow_older_checkpoint=True, observers=(starts,)
    )
    assert result.outcome is Outcome.FINISHED
    assert starts.checkpoints[0] is not None and starts.checkpoints[0] < damaged


def test_a_damaged_manifest_is_reported_unless_an_older_one_is_allowed(tmp_path: Path) -> None:
    half_a_run(tmp_path)
    newest = max((tmp_path / "ck").rglob("manifest.json"), key=lambda file: int(file.parent.name.split("-")[0]))
    newest.write_bytes(newest.read_bytes()[:-20])

    def pipeline(env: Environment) -> None:
        windows(env, str(tmp_path / "out"))

    with pytest.raises(CorruptCheckpoint, match=r"manifest\.json"):
        run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=1)
    result = run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=1, allow_older_checkpoint=True)
    assert result.outcome is Outcome.FINISHED


class Starts(JobEvents):
    def __init__(self) -> None:
        self.checkpoints: list[int | None] = []

    def starting(self, attempts: object, checkpoint: int | None) -> None:
        self.checkpoints.append(checkpoint)


def test_a_damaged_record_of_what_counts_is_reported_with_advice_that_works(tmp_path: Path) -> None:
    half_a_run(tmp_path)
    job = tmp_path / "ck" / "test" / "test"
    newest = max((job / "current").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-20])

    def pipeline(env: Environment) -> None:
        windows(env, str(tmp_path / "out"))

    checkpoint = max(job.glob("checkpoints/*/manifest.json"), key=lambda file: int(file.parent.name.split("-")[0]))
    for how in ({}, {"allow_older_checkpoint": True}, {"restore_from": str(checkpoint.parent), "take_over": True}):
        with pytest.raises(CorruptCheckpoint) as refused:
            run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=1, **how)
        assert str(refused.value).startswith(newest.as_uri() + " is corrupt"), "a file that is there"
        assert "in a folder, move this file away" in str(refused.value)
        assert "another storage.uri" in str(refused.value)
    elsewhere, here = Starts(), Starts()
    result = run_pipeline(
        pipeline,
        storage=tmp_path / "other",
        parallelism=1,
        restore_from=str(checkpoint.parent),
        take_over=True,
        observers=(elsewhere,),
    )
    assert result.outcome is Outcome.FINISHED and elsewhere.checkpoints[0] == int(checkpoint.parent.name.split("-")[0])
    newest.rename(tmp_path / "damaged.json")
    assert run_pipeline(pipeline, storage=tmp_path / "ck", parallelism=1, observers=(here,)).outcome is Outcome.FINISHED
    assert here.checkpoints[0] is not None, "not from the beginning"


def test_a_state_type_that_changed_is_an_error(tmp_path: Path) -> None:
    half_a_run(tmp_path)

    def changed(env: Environment) -> None:
        windows(env, str(tmp_path / "out"), bids=Count(), highest=Max("price"))

    result = run_pipeline(changed, storage=tmp_path / "ck", parallelism=1)
    assert result.exit_code is ExitCode.UNREADABLE_STATE
    assert "uid windows" in result.message and "sum(price) was int64, is gone" in result.message
    assert "Give the changed operator a new uid" in result.message
    assert not result.history


def test_state_that_no_operator_takes_is_an_error_unless_allowed(tmp_path: Path) -> None:
    half_a_run(tmp_path)

    def without_windows(env: Environment) -> None:
        source = bids(keys=KEYS, count=1000, events_per_second=20_000)
        env.from_source(source, uid="bids").sink_to(CollectSink(tmp_path / "out"), uid="out")

    with pytest.raises(UnmatchedState, match="windows"):
        run_pipeline(without_windows, storage=tmp_path / "ck", parallelism=1)
    result = run_pipeline(without_windows, storage=tmp_path / "ck", parallelism=1, allow_non_restored_state=True)
    assert result.outcome is Outcome.FINISHED


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("a small file system can be mounted by root only")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


class Aborts(JobEvents):
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def checkpoint_aborted(self, action: Abort) -> None:
        self.reasons.append(action.reason)


def test_a_full_disk_aborts_the_checkpoint_and_the_job_goes_on(tmp_path: Path, small_disk: Path) -> None:
    filler = small_disk / "filler"
    aborts = Aborts()

    async def fill_the_disk_for_a_while(job: RunningJob) -> None:
        await asyncio.sleep(1.0)
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass
        while not aborts.reasons:
            await asyncio.sleep(0.05)
        filler.unlink()

    def pipeline(env: Environment) -> None:
        windows(env, str(tmp_path / "out"))

    result = run_pipeline(
        pipeline,
        storage=small_disk / "ck",
        parallelism=1,
        retained=1,
        observers=(aborts,),
        meanwhile=fill_the_disk_for_a_while,
    )
    assert result.outcome is Outcome.FINISHED
    assert "No space left" in aborts.reasons[0]
    assert sum(row["bids"] for row in CollectSink(tmp_path / "out").read_committed()) == 400_000
