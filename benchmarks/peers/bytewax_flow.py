"""Bytewax: Python functions on a Rust dataflow, one worker.

Windows use Bytewax's own windowing operators with an event clock. Its watermark is kept per key and also
moves with the system's clock; that part is switched off, because a replay of history would otherwise drop
rows as late. What must wait for all keys of a window (the winner, the average) is taken at the end of the
bounded input. Items are tuples in the order of the table's columns; they come and go in batches.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as win
import pyarrow as pa
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow, Stream
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import KeyedStream
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import run_main

from benchmarks.nexmark import queries as q
from benchmarks.worker import Job, serve

_COLUMNS = {
    "person": ["id", "name", "city", "state", "ts"],
    "auction": ["id", "seller", "category", "expires", "ts"],
    "bid": ["auction", "bidder", "price", "channel", "ts"],
    "keyed_bid": ["auction", "bidder", "price", "ts"],
}
_BATCH_ROWS = 1_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WINDOW = timedelta(milliseconds=q.WINDOW_MS)


class _FilePartition(StatefulSourcePartition[tuple, int]):
    """All files of a table, one after the other; the position is the number of batches read."""

    def __init__(self, files: list[str], columns: list[str], position: int | None) -> None:
        self._position = position or 0
        self._batches = self._read(files, columns)
        for _ in range(self._position):
            next(self._batches)

    def _read(self, files: list[str], columns: list[str]) -> Iterator[list[tuple]]:
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(_BATCH_ROWS, columns=columns):
                yield list(zip(*(column.to_pylist() for column in batch.columns), strict=True))

    def next_batch(self) -> list[tuple]:
        rows = next(self._batches)
        self._position += 1
        return rows

    def snapshot(self) -> int:
        return self._position


class _Files(FixedPartitionedSource[tuple, int]):
    def __init__(self, files: list[str], columns: list[str]) -> None:
        self._files, self._columns = files, columns

    def list_parts(self) -> list[str]:
        return ["all"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _FilePartition:
        return _FilePartition(self._files, self._columns, resume_state)


class _Discard(StatelessSinkPartition[tuple]):
    def write_batch(self, items: list[tuple]) -> None:
        pass


class _ToParquet(StatelessSinkPartition[tuple]):
    def __init__(self, directory: Path, columns: tuple[str, ...]) -> None:
        self._directory, self._columns, self._rows = directory, columns, []

    def write_batch(self, items: list[tuple]) -> None:
        self._rows.extend(items)

    def close(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        columns = zip(*self._rows, strict=True) if self._rows else [[] for _ in self._columns]
        table = pa.table(dict(zip(self._columns, map(list, columns), strict=True)))
        pq.write_table(table, self._directory / "result.parquet")


class _Results(DynamicSink[tuple]):
    def __init__(self, job: Job) -> None:
        self._job = job

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition[tuple]:
        if self._job.writes_files:
            return _ToParquet(Path(self._job.output), q.QUERIES[self._job.query].columns)
        return _Discard()


def _event_clock() -> win.EventClock:
    def time_of(row: tuple) -> datetime:
        return _EPOCH + timedelta(milliseconds=row[-1])

    return win.EventClock(time_of, timedelta(0), now_getter=lambda: _EPOCH, to_system_utc=lambda _: None)


def _tumble() -> win.TumblingWindower:
    return win.TumblingWindower(length=_WINDOW, align_to=_EPOCH)


def _window_of(ts: int) -> int:
    return ts - ts % q.WINDOW_MS


def _key_by(name: str, stream: Stream, column: int) -> KeyedStream:
    return op.key_on(name, stream, lambda row: str(row[column]))


def _add_count_and_sum(state: list[int], row: tuple) -> list[int]:
    state[0] += 1
    state[1] += row[2]
    return state


def _merge_sums(left: list[int], right: list[int]) -> list[int]:
    return [left[0] + right[0], left[1] + right[1]]


def tumbling(keyed_bid: Stream) -> Stream:
    keyed = _key_by("key", keyed_bid, 0)
    folded = win.fold_window("sum", keyed, _event_clock(), _tumble(), lambda: [0, 0], _add_count_and_sum, _merge_sums)

    def as_row(item: tuple[str, tuple[int, list[int]]]) -> tuple:
        key, (window, (bids, total)) = item
        return window * q.WINDOW_MS, _restored(key), bids, total

    return op.map("row", folded.down, as_row)


def q0(bid: Stream) -> Stream:
    return op.map("pass", bid, lambda row: row)


def q1(bid: Stream) -> Stream:
    def convert(row: tuple) -> tuple:
        auction, bidder, price, channel, ts = row
        return auction, bidder, q.DOLLAR_TO_EURO * price, channel, ts

    return op.map("convert", bid, convert)


def q2(bid: Stream) -> Stream:
    chosen = op.filter("choose", bid, lambda row: row[0] % q.Q2_MODULUS == 0)
    return op.map("row", chosen, lambda row: (row[0], row[2]))


def _tagged(name: str, stream: Stream, column: int, tag: str) -> KeyedStream:
    return op.map(name, stream, lambda row: (str(row[column]), (tag, row)))


def q3(person: Stream, auction: Stream) -> Stream:
    sellers = op.filter("states", person, lambda row: row[3] in q.Q3_STATES)
    offers = op.filter("category", auction, lambda row: row[2] == q.Q3_CATEGORY)

    def join(state: list | None, item: tuple[str, tuple]) -> tuple[list, list[tuple]]:
        seller, waiting = state or (None, [])
        tag, row = item
        if tag == "person":
            return [row, []], [(*row[1:4], offer) for offer in waiting]
        if seller is None:
            return [None, [*waiting, row[0]]], []
        return [seller, waiting], [(*seller[1:4], row[0])]

    both = op.merge("both", _tagged("sellers", sellers, 0, "person"), _tagged("offers", offers, 1, "auction"))
    return op.key_rm("rows", op.stateful_flat_map("join", both, join))


def q4(auction: Stream, bid: Stream) -> Stream:
    def join(state: list | None, item: tuple[str, tuple]) -> tuple[list, list[tuple]]:
        """Bids may arrive before their auction, because the two files are read at their own pace."""
        offer, waiting = state or (None, [])
        tag, row = item
        if tag == "auction":
            offer, candidates, waiting = row, waiting, []
        elif offer is None:
            return [None, [*waiting, row]], []
        else:
            candidates = [row]
        return [offer, waiting], [(offer[2], row[2], row[4]) for row in candidates if _is_valid(offer, row)]

    both = op.merge("both", _tagged("offers", auction, 0, "auction"), _tagged("bids", bid, 0, "bid"))
    valid = op.stateful_flat_map("join", both, join)
    highest = win.max_window("highest", valid, _event_clock(), _tumble(), by=lambda row: row[1])

    def by_window_and_category(item: tuple[str, tuple[int, tuple]]) -> tuple[str, int]:
        _, (window, (category, price, _)) = item
        return f"{window * q.WINDOW_MS}/{category}", price

    prices = op.map("rekey", highest.down, by_window_and_category)
    sums = op.fold_final("average", prices, lambda: [0, 0], lambda state, price: [state[0] + price, state[1] + 1])

    def as_row(item: tuple[str, list[int]]) -> tuple:
        window, category = item[0].split("/")
        return int(window), int(category), item[1][0] / item[1][1]

    return op.map("row", sums, as_row)


def _is_valid(offer: tuple, bid: tuple) -> bool:
    return offer[4] <= bid[4] <= min(offer[3], offer[4] + q.AUCTION_MS)


def q5(bid: Stream) -> Stream:
    hopping = win.SlidingWindower(length=_WINDOW, offset=timedelta(milliseconds=q.SLIDE_MS), align_to=_EPOCH)
    keyed = _key_by("key", bid, 0)
    counted = win.fold_window(
        "count", keyed, _event_clock(), hopping, int, lambda count, _: count + 1, lambda a, b: a + b
    )

    def by_window(item: tuple[str, tuple[int, int]]) -> tuple[str, tuple[int, int]]:
        auction, (window, bids) = item
        return str(window * q.SLIDE_MS), (bids, -int(auction))

    winners = op.max_final("winner", op.map("rekey", counted.down, by_window))
    return op.map("row", winners, lambda item: (int(item[0]), -item[1][1], item[1][0]))


def q7(bid: Stream) -> Stream:
    keyed = op.key_on("one_key", bid, lambda _: "all")
    best = win.max_window("best", keyed, _event_clock(), _tumble(), by=lambda row: (row[2], -row[0], -row[1]))

    def as_row(item: tuple[str, tuple[int, tuple]]) -> tuple:
        _, (window, row) = item
        return window * q.WINDOW_MS, row[0], row[1], row[2]

    return op.map("row", best.down, as_row)


def q8(person: Stream, auction: Stream) -> Stream:
    def join(state: list | None, item: tuple[str, tuple]) -> tuple[list, list[tuple]]:
        """State: the person, the windows of earlier sales, and whether the person was reported."""
        seller, windows, reported = state or (None, set(), False)
        tag, row = item
        if tag == "person":
            seller = row
        else:
            windows = windows | {_window_of(row[4])}
        if reported or seller is None or _window_of(seller[4]) not in windows:
            return [seller, windows, reported], []
        return [seller, set(), True], [(_window_of(seller[4]), seller[0], seller[1])]

    both = op.merge("both", _tagged("persons", person, 0, "person"), _tagged("sales", auction, 1, "auction"))
    return op.key_rm("rows", op.stateful_flat_map("join", both, join))


def q11(bid: Stream) -> Stream:
    def add(state: list[int], row: tuple) -> list[int]:
        return [state[0] + 1, min(state[1], row[4]), max(state[2], row[4])]

    def merge(left: list[int], right: list[int]) -> list[int]:
        return [left[0] + right[0], min(left[1], right[1]), max(left[2], right[2])]

    # A session goes on while the silence is at most the gap; elsewhere 10 s of silence end it.
    gap = win.SessionWindower(gap=timedelta(milliseconds=q.SESSION_GAP_MS - 1))
    keyed = _key_by("key", bid, 1)
    sessions = win.fold_window("count", keyed, _event_clock(), gap, lambda: [0, 1 << 62, 0], add, merge)

    def as_row(item: tuple[str, tuple[int, list[int]]]) -> tuple:
        bidder, (_, (bids, first, last)) = item
        return int(bidder), bids, first, last + q.SESSION_GAP_MS

    return op.map("row", sessions.down, as_row)


def q12(bid: Stream) -> Stream:
    keyed = _key_by("key", bid, 1)
    counted = win.fold_window(
        "count", keyed, win.SystemClock(), _tumble(), int, lambda count, _: count + 1, lambda a, b: a + b
    )

    def as_row(item: tuple[str, tuple[int, int]]) -> tuple:
        bidder, (window, bids) = item
        return int(bidder), window * q.WINDOW_MS, bids

    return op.map("row", counted.down, as_row)


_QUERIES: dict[str, Callable[..., Stream]] = {
    function.__name__: function for function in (tumbling, q0, q1, q2, q3, q4, q5, q7, q8, q11, q12)
}


def _restored(key: str) -> int | str:
    return int(key) if key.isdigit() else key


def run(job: Job) -> dict[str, Any]:
    flow = Dataflow("benchmark")
    tables = [op.input(table, flow, _Files(job.files[table], _COLUMNS[table])) for table in q.QUERIES[job.query].tables]
    op.output("result", _QUERIES[job.query](*tables), _Results(job))
    if job.checkpoint_interval_ms:
        recovery = Path(job.checkpoints)
        recovery.mkdir(parents=True)
        init_db_dir(recovery, 1)
        epoch = timedelta(milliseconds=job.checkpoint_interval_ms)
        run_main(flow, epoch_interval=epoch, recovery_config=RecoveryConfig(str(recovery)))
    else:
        run_main(flow, epoch_interval=timedelta(seconds=10))
    return {"configuration": {"workers": 1, "batch rows": _BATCH_ROWS}}


if __name__ == "__main__":
    serve(run, {"bytewax": version("bytewax")})
