"""The reference itself, on events few enough to be worked out by hand."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("duckdb", reason="the reference needs DuckDB: part of the benchmarks' own environment")

from benchmarks.nexmark.reference import compare_results, compute_reference

BIDS = [  # auction, bidder, price, ts
    (1, 7, 100, 1_000),
    (1, 8, 300, 2_000),
    (2, 7, 300, 9_999),
    (123, 7, 50, 10_000),
    (2, 7, 10, 21_000),
]
AUCTIONS = [(1, 70, 10, 1_500, 0), (2, 71, 11, 30_000, 9_000)]
PERSONS = [(70, "Ann", "Bend", "OR", 5_000), (71, "Bob", "Kent", "WA", 10_000)]


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, list[Path]]:
    bid = [(auction, bidder, price, "web", ts) for auction, bidder, price, ts in BIDS]
    rows = {
        "bid": (("auction", "bidder", "price", "channel", "ts"), bid),
        "keyed_bid": (("auction", "bidder", "price", "ts"), BIDS),
        "auction": (("id", "seller", "category", "expires", "ts"), AUCTIONS),
        "person": (("id", "name", "city", "state", "ts"), PERSONS),
    }
    return {name: [write(tmp_path / f"{name}.parquet", *content)] for name, content in rows.items()}


def write(file: Path, columns: tuple[str, ...], rows: list[tuple]) -> Path:
    pq.write_table(pa.table(dict(zip(columns, map(list, zip(*rows, strict=True)), strict=True))), file)
    return file


def result(query: str, tables: dict[str, list[Path]], tmp_path: Path) -> list[tuple]:
    target = tmp_path / f"{query}-reference.parquet"
    compute_reference(query, tables, target)
    return sorted(tuple(row.values()) for row in pq.read_table(target).to_pylist())


EXPECTED = {
    "tumbling": [(0, 1, 2, 400), (0, 2, 1, 300), (10_000, 123, 1, 50), (20_000, 2, 1, 10)],
    "q2": [(123, 50)],
    "q3": [("Ann", "Bend", "OR", 1)],
    "q4": [(0, 10, 100.0), (0, 11, 300.0), (20_000, 11, 10.0)],
    "q7": [(0, 1, 8, 300), (10_000, 123, 7, 50), (20_000, 2, 7, 10)],
    "q8": [(0, 70, "Ann")],
    "q11": [(7, 1, 21_000, 31_000), (7, 3, 1_000, 20_000), (8, 1, 2_000, 12_000)],
}


@pytest.mark.parametrize("query", sorted(EXPECTED))
def test_results_worked_out_by_hand(query: str, tables: dict[str, list[Path]], tmp_path: Path) -> None:
    assert result(query, tables, tmp_path) == EXPECTED[query]


def test_hopping_windows_have_one_winner_each(tables: dict[str, list[Path]], tmp_path: Path) -> None:
    winners = {start: (auction, bids) for start, auction, bids in result("q5", tables, tmp_path)}
    assert winners[-8_000] == (1, 1)
    assert winners[0] == (1, 2)
    assert winners[2_000] == (1, 1), "a tie goes to the smaller auction"


def test_order_does_not_matter_but_the_number_of_equal_rows_does(tmp_path: Path) -> None:
    columns = ("auction", "price")
    expected = write(tmp_path / "expected.parquet", columns, [(1, 1), (1, 1), (2, 2)])
    shuffled = write(tmp_path / "shuffled.parquet", columns, [(2, 2), (1, 1), (1, 1)])
    doubled = write(tmp_path / "doubled.parquet", columns, [(2, 2), (2, 2), (1, 1)])
    assert compare_results("q2", expected, [shuffled]).equal
    comparison = compare_results("q2", expected, [doubled])
    assert (comparison.missing, comparison.unexpected) == (1, 1)


def test_no_result_at_all_is_not_equal(tmp_path: Path) -> None:
    expected = write(tmp_path / "expected.parquet", ("auction", "price"), [(1, 1)])
    assert not compare_results("q2", expected, []).equal


def test_growing_windows_of_processing_time_count_once(tmp_path: Path) -> None:
    columns = ("bidder", "window_start", "bids")
    expected = write(tmp_path / "expected.parquet", columns, [(1, 0, 5)])
    actual = write(tmp_path / "actual.parquet", columns, [(1, 100, 2), (1, 100, 3), (1, 200, 2)])
    assert compare_results("q12", expected, [actual]).equal
