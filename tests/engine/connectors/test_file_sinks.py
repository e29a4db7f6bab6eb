"""Rows in files appear when they are committed, once, whoever commits them and however often."""

from __future__ import annotations

import errno
import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from snapshot_engine.connectors import staged_files
from snapshot_engine.connectors.collect_sink import CollectSink
from snapshot_engine.connectors.jsonl_sink import JsonLinesSink
from snapshot_engine.connectors.parquet_sink import ParquetSink
from snapshot_engine.connectors.protocols import Committable, SweptJob, WriterContext
from snapshot_engine.connectors.staged_files import STAGING, PreparedDataLost, StagedFileSink
from snapshot_engine.operators.stream_type import RECORDS
from snapshot_engine.state.packing import pack

Batch = Callable[..., pa.RecordBatch]
Context = Callable[..., WriterContext]
JOB = SweptJob("job", "1a")


def _read(sink: StagedFileSink) -> list[int]:
    """What any other program would see."""
    rows: list[int] = []
    for file in sorted(sink.folder.glob("*.*")):
        match file.suffix:
            case ".parquet":
                rows += pq.read_table(file)["n"].to_pylist()
            case ".jsonl":
                rows += [json.loads(line)["n"] for line in file.read_text().splitlines()]
            case ".arrow":
                rows += pa.ipc.open_file(file).read_all()["n"].to_pylist()
    return sorted(rows)


@pytest.fixture(params=[ParquetSink, JsonLinesSink, CollectSink])
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> StagedFileSink:
    made: StagedFileSink = request.param(tmp_path / "out")
    return made


def _prepare(sink: StagedFileSink, context: WriterContext, *batches: pa.RecordBatch) -> list[Committable]:
    writer = sink.open(context)
    for batch in batches:
        writer.write(batch)
    prepared = list(writer.prepare(1))
    writer.close()
    return json.loads(json.dumps(prepared))  # type: ignore[no-any-return]


def test_nothing_is_visible_before_the_commit(sink: StagedFileSink, context: Context, batch: Batch) -> None:
    prepared = _prepare(sink, context(), batch(1, 2), batch(3))
    assert _read(sink) == []
    sink.commit(prepared)
    assert _read(sink) == [1, 2, 3]


def test_each_checkpoint_has_files_of_its_own(sink: StagedFileSink, context: Context, batch: Batch) -> None:
    writer = sink.open(context())
    writer.write(batch(1))
    first = writer.prepare(1)
    writer.write(batch(2))
    second = writer.prepare(2)
    assert writer.prepare(3) == []
    sink.commit(second)
    assert _read(sink) == [2]
    sink.commit(first)
    assert _read(sink) == [1, 2]


def test_commits_in_any_order_and_any_number_give_the_same(
    sink: StagedFileSink, context: Context, batch: Batch
) -> None:
    prepared = [_prepare(sink, context(subtask=n), batch(n))[0] for n in range(3)]
    for order in itertools.permutations(prepared):
        sink.commit(order)
        pickle.loads(pickle.dumps(sink)).commit([*order, *order])
        assert _read(sink) == [0, 1, 2]


@pytest.mark.parametrize("committed", [0, 1, 2])
def test_a_commit_that_was_cut_short_is_finished_by_the_next(
    sink: StagedFileSink, context: Context, batch: Batch, committed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared = [_prepare(sink, context(subtask=n), batch(n))[0] for n in range(2)]
    publish, done = staged_files._publish, []

    def crash_after(staged: Path, target: Path) -> None:
        if len(done) == committed:
            raise OSError(errno.EIO, "crash")
        done.append(target)
        publish(staged, target)

    with monkeypatch.context() as patch:
        patch.setattr(staged_files, "_publish", crash_after)
        if committed < 2:
            with pytest.raises(OSError, match="crash"):
                sink.commit(prepared)
    sink.commit(prepared)
    assert _read(sink) == [0, 1]


def test_a_closed_writer_gives_up_what_is_open_and_keeps_what_is_prepared(
    sink: StagedFileSink, context: Context, batch: Batch
) -> None:
    writer = sink.open(context())
    writer.write(batch(1))
    prepared = writer.prepare(1)
    writer.write(batch(2))
    writer.close()
    sink.commit(prepared)
    assert _read(sink) == [1]
    assert [path for path in sink.folder.rglob("*") if path.is_file()] == list(sink.folder.glob("*.*"))


def test_two_attempts_never_share_a_name(sink: StagedFileSink, context: Context, batch: Batch) -> None:
    """Not even a job that begins again from nothing, with the same generation and attempt."""
    for who in (context(), context(attempt=2), context(generation=2), context(job="other"), context()):
        sink.commit(_prepare(sink, who, batch(1)))
    assert _read(sink) == [1] * 5


def test_rows_that_a_reader_took_away_are_not_missed(sink: StagedFileSink, context: Context, batch: Batch) -> None:
    prepared = _prepare(sink, context(), batch(1))
    sink.commit(prepared)
    for file in sink.folder.glob("*.*"):
        file.unlink()
    sink.commit(prepared)
    assert _read(sink) == []


def test_prepared_rows_that_are_gone_are_an_error(sink: StagedFileSink, context: Context, batch: Batch) -> None:
    prepared = _prepare(sink, context(), batch(1))
    (sink.folder / STAGING).rename(sink.folder / "elsewhere")
    with pytest.raises(PreparedDataLost, match="its rows are lost"):
        sink.commit(prepared)


@pytest.mark.parametrize("committed", [False, True])
def test_a_sink_that_writes_elsewhere_now_commits_where_rows_were_prepared(
    sink: StagedFileSink, context: Context, batch: Batch, tmp_path: Path, committed: bool
) -> None:
    prepared = _prepare(sink, context(), batch(1))
    if committed:
        sink.commit(prepared)
    elsewhere = type(sink)(tmp_path / "elsewhere")  # type: ignore[call-arg]
    elsewhere.commit(prepared)
    assert (_read(sink), _read(elsewhere)) == ([1], [])


def test_a_staging_folder_that_was_moved_is_committed_where_it_is_now(
    sink: StagedFileSink, context: Context, batch: Batch, tmp_path: Path
) -> None:
    prepared = _prepare(sink, context(), batch(1))
    sink.folder.rename(tmp_path / "moved")
    moved = type(sink)(tmp_path / "moved")  # type: ignore[call-arg]
    moved.commit(prepared)
    assert _read(moved) == [1]


def test_the_sweep_removes_what_older_drivers_left_open_or_prepared(
    sink: StagedFileSink, context: Context, batch: Batch
) -> None:
    dead = sink.open(context(subtask=1))
    dead.write(batch(1))
    _prepare(sink, context(), batch(2))
    kept = _prepare(sink, context(subtask=2), batch(3))
    other_vertex = _prepare(sink, context(vertex="out-1"), batch(4))
    other_job = _prepare(sink, context(job="other"), batch(5))
    mine = _prepare(sink, context(generation=2), batch(6))
    sink.sweep(JOB, "out", 2, kept)
    sink.sweep(JOB, "out", 2, kept)
    assert len([path for path in (sink.folder / STAGING).rglob("*") if path.is_file()]) == 4
    sink.commit([*kept, *other_vertex, *other_job, *mine])
    assert _read(sink) == [3, 4, 5, 6]


def test_the_sweep_leaves_a_job_of_the_same_name_alone(sink: StagedFileSink, context: Context, batch: Batch) -> None:
    """It may run, in another namespace or from another checkpoint storage, and commit what it has prepared."""
    namesake = sink.open(context(lineage="2b"))
    namesake.write(batch(1))
    prepared = list(namesake.prepare(1))
    namesake.write(batch(2))
    sink.sweep(JOB, "out", 5, [])
    sink.commit([*prepared, *namesake.prepare(2)])
    assert _read(sink) == [1, 2]


def test_what_earlier_versions_staged_without_a_lineage_is_committed_and_swept(
    sink: StagedFileSink, context: Context, batch: Batch
) -> None:
    kept = _prepare(sink, context(lineage=""), batch(1))
    left = _prepare(sink, context(lineage=""), batch(2))
    after_the_first_that_knew = _prepare(sink, context(lineage="", generation=4), batch(3))
    sink.sweep(SweptJob("job", "1a", lineage_since=4), "out", 9, kept)
    assert not (sink.folder / left[0]["staged"]).exists()
    sink.commit([*kept, *after_the_first_that_knew])
    assert _read(sink) == [1, 3]


def test_a_job_that_never_ran_an_earlier_version_sweeps_nothing_of_one(
    sink: StagedFileSink, context: Context, batch: Batch
) -> None:
    prepared = _prepare(sink, context(lineage=""), batch(1))
    sink.sweep(JOB, "out", 9, [])
    sink.commit(prepared)
    assert _read(sink) == [1]


def test_what_was_kept_and_committed_can_be_committed_again_after_a_sweep(
    sink: StagedFileSink, context: Context, batch: Batch
) -> None:
    prepared = _prepare(sink, context(), batch(1))
    sink.commit(prepared)
    for file in sink.folder.glob("*.*"):
        file.unlink()
    sink.sweep(JOB, "out", 2, prepared)
    sink.commit(prepared)


def test_sweeping_where_nothing_was_written_is_no_error(sink: StagedFileSink) -> None:
    sink.sweep(JOB, "out", 2, [])
    sink.commit([])


def test_a_full_disk_fails_the_prepare_and_shows_nothing(
    sink: StagedFileSink, context: Context, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    writer = sink.open(context())
    writer.write(batch(1))
    monkeypatch.setattr(staged_files, "fsync_file", full)
    with pytest.raises(OSError, match="No space left"):
        writer.prepare(1)
    writer.close()
    assert _read(sink) == []


def test_names_of_any_kind_are_safe(sink: StagedFileSink, context: Context, batch: Batch) -> None:
    who = context(job="my job", vertex="a/../b", generation=1)
    prepared = _prepare(sink, who, batch(1))
    sink.commit(prepared)
    assert _read(sink) == [1]
    _prepare(sink, who, batch(2))
    sink.sweep(SweptJob("my job", "1a"), "a/../b", 2, [])
    assert not [path for path in (sink.folder / STAGING).rglob("*") if path.is_file()]


# The formats


def test_parquet_collects_small_batches_into_row_groups(tmp_path: Path, context: Context, batch: Batch) -> None:
    sink = ParquetSink(tmp_path, row_group_rows=100)
    sink.commit(_prepare(sink, context(), *[batch(n) for n in range(250)]))
    (file,) = tmp_path.glob("*.parquet")
    groups = pq.ParquetFile(file).metadata
    assert [groups.row_group(n).num_rows for n in range(groups.num_row_groups)] == [100, 100, 50]


def test_parquet_refuses_plain_values(tmp_path: Path, context: Context) -> None:
    writer = ParquetSink(tmp_path).open(context())
    with pytest.raises(TypeError, match=r"needs columns.*JSON lines"):
        writer.write(pa.RecordBatch.from_pydict({"value": [pack(1)]}, RECORDS))


def test_json_lines_take_what_json_has_no_form_for(tmp_path: Path, context: Context) -> None:
    sink = JsonLinesSink(tmp_path)
    table = {"t": pa.array([0], pa.timestamp("ms")), "b": [b"\x00"], "f": [float("nan")], "l": [[1]], "s": ["ü"]}
    plain = pa.RecordBatch.from_pydict({"value": [pack((1, "a"))]}, RECORDS)
    sink.commit(_prepare(sink, context(), pa.RecordBatch.from_pydict(table)))
    sink.commit(_prepare(sink, context(subtask=1), plain))
    lines = [line for file in sorted(tmp_path.glob("*.jsonl")) for line in file.read_text().splitlines()]
    assert lines == ['{"t": "1970-01-01T00:00:00.000000", "b": "AA==", "f": null, "l": [1], "s": "ü"}', '[1, "a"]']


def test_collected_rows_are_read_back_with_their_types(context: Context, batch: Batch) -> None:
    sink = CollectSink()
    with pytest.raises(ValueError, match="nothing is committed"):
        sink.read_table()
    sink.commit(_prepare(sink, context(), batch(1, 2)))
    assert sink.read_committed() == [{"n": 1}, {"n": 2}]
    assert sink.read_table().schema == batch().schema


def test_collected_plain_values_come_back_as_they_were(context: Context) -> None:
    sink = CollectSink()
    values: list[Any] = [1, ("a", 2.5), {"k": [None]}]
    sink.commit(_prepare(sink, context(), pa.RecordBatch.from_pydict({"value": [pack(v) for v in values]}, RECORDS)))
    assert sink.read_committed() == values


def test_a_place_without_rename_is_refused() -> None:
    with pytest.raises(ValueError, match="committed by rename, which s3:// does not have"):
        ParquetSink("s3://bucket/out")


def test_timestamps_in_json_lines_have_one_form(tmp_path: Path, context: Context) -> None:
    sink = JsonLinesSink(tmp_path)
    times = pa.array([13_659, 16_000], pa.timestamp("ms"))
    rows = pa.record_batch(
        {"at": times, "there": times.cast(pa.timestamp("us", "UTC")), "in": [[time] for time in times]}
    )
    sink.commit(_prepare(sink, context(), rows))
    (file,) = tmp_path.glob("*.jsonl")
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    assert first == {
        "at": "1970-01-01T00:00:13.659000",
        "there": "1970-01-01T00:00:13.659000+00:00",
        "in": ["1970-01-01T00:00:13.659000"],
    }
    assert second["at"] == second["in"][0] == "1970-01-01T00:00:16.000000"
    assert second["there"] == "1970-01-01T00:00:16.000000+00:00"
