"""The generator: same seed, same events; Nexmark's proportions; time that only goes on."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from benchmarks.nexmark.events import BASE_MS, TABLES, Stream, make_closing_row, make_slice, rows_per_slice

STREAM = Stream(seed=7, keys=100, slice_events=5_000, events_per_second=1_000)


@pytest.mark.parametrize("table", TABLES)
def test_a_slice_can_be_made_alone_and_always_comes_out_the_same(table: str) -> None:
    assert make_slice(STREAM, table, 3).equals(make_slice(STREAM, table, 3))


@pytest.mark.parametrize("table", TABLES)
def test_another_seed_makes_other_events(table: str) -> None:
    other = Stream(**{**STREAM.parameters(), "seed": 8})
    assert not make_slice(STREAM, table, 0).equals(make_slice(other, table, 0))


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_are_bids() -> None:
    counts = [make_slice(STREAM, table, 0).num_rows for table in ("person", "auction", "bid")]
    assert counts == [100, 300, 4_600]
    assert counts == [rows_per_slice(STREAM, table) for table in ("person", "auction", "bid")]


@pytest.mark.parametrize("table", TABLES)
def test_time_never_goes_back_from_slice_to_slice(table: str) -> None:
    rows = pa.concat_tables([make_slice(STREAM, table, 0), make_slice(STREAM, table, 1)])
    times = rows["ts"].to_pylist()
    assert times == sorted(times)
    assert times[0] >= BASE_MS


def test_bids_name_only_auctions_and_people_that_exist_already() -> None:
    bids = make_slice(STREAM, "bid", 1)
    assert pc.max(bids["auction"]).as_py() <= 599
    assert pc.max(bids["bidder"]).as_py() <= 199
    assert pc.min(bids["auction"]).as_py() >= 300 - STREAM.keys


def test_keyed_bids_use_every_key_and_no_other() -> None:
    auctions = set(make_slice(STREAM, "keyed_bid", 0)["auction"].to_pylist())
    assert auctions == set(range(STREAM.keys))


def test_string_keys_are_the_same_keys_as_text() -> None:
    as_text = Stream(**{**STREAM.parameters(), "key_type": "string"})
    numbers = make_slice(STREAM, "keyed_bid", 0)["auction"].to_pylist()
    assert make_slice(as_text, "keyed_bid", 0)["auction"].to_pylist() == [f"auction-{number}" for number in numbers]


@pytest.mark.parametrize("table", TABLES)
def test_the_closing_row_has_the_tables_schema(table: str) -> None:
    closing = make_closing_row(table, ts=5)
    assert closing.schema == make_slice(STREAM, table, 0).schema
    assert closing["ts"].to_pylist() == [5]


def test_an_unknown_key_type_is_refused() -> None:
    with pytest.raises(ValueError, match="expected one of int, string"):
        Stream(key_type="float")
