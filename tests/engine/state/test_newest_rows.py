from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapshot_engine.state import newest_rows
from snapshot_engine.state.key_codec import KeyCodec
from snapshot_engine.state.newest_rows import FrozenRows, NewestRows

SCHEMA = pa.schema([("text", pa.string()), ("number", pa.int64())])


def empty(*, tracked: bool = False) -> NewestRows:
    return NewestRows(KeyCodec(["key"], [pa.int64()]), SCHEMA, tracked=tracked)


def batch(values: list[Any]) -> pa.RecordBatch:
    return pa.record_batch({"text": [str(value) for value in values], "number": values}, schema=SCHEMA)


def put(newest: NewestRows, keys: list[int | None], values: list[Any], epoch: int = 1) -> None:
    newest.put(newest.link(newest.codec.encode([pa.array(keys, pa.int64())])), batch(values), epoch)


def content(frozen: FrozenRows) -> dict[int | None, int]:
    found: dict[int | None, int] = {}
    for part in frozen.batches(["key"], SCHEMA.names):
        for row in part.to_pylist():
            assert row["text"] == str(row["number"])
            assert row["key"] not in found
            found[row["key"]] = row["number"]
    return found


def test_each_record_is_linked_to_what_its_key_had_before() -> None:
    newest = empty()
    put(newest, [1, 2, 3], [10, 20, 30])
    linked = newest.link(newest.codec.encode([pa.array([3, 9, 3, 1, 9])]))
    assert linked.keys == 3
    known = [*linked.old.column("number").to_pylist(), None, "0th", "1st", "2nd", "3rd", "4th"]
    assert [known[before] for before in linked.before] == [30, None, "0th", 10, "1st"]


@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_rows_are_what_was_put_last_while_others_are_dropped(seed: int) -> None:
    rng = random.Random(seed)
    newest = empty(tracked=True)
    expected: dict[int | None, int] = {}
    changed: dict[int, set[int | None]] = {}
    frozen: list[tuple[FrozenRows, dict[int | None, int]]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest_rows, "_DEAD_ROWS", rng.choice([0, 5, 1000]))
        for epoch in range(1, 20):
            keys = [rng.choice([None, *range(rng.choice([3, 50]))]) for _ in range(rng.randrange(1, 30))]
            values = [rng.randrange(1000) for _ in keys]
            put(newest, keys, values, epoch)
            expected.update(zip(keys, values, strict=True))
            changed[epoch] = set(keys)
            if rng.random() < 0.3:
                after = rng.choice([None, rng.randrange(epoch)])
                since = {key for number, keys in changed.items() if number > (after or 0) for key in keys}
                frozen.append((newest.freeze(after), {key: expected[key] for key in since}))
    assert content(newest.freeze(None)) == expected
    assert newest.size == len(expected)
    for view, wanted in frozen:
        assert content(view) == wanted


def test_rows_that_newer_ones_took_the_place_of_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_rows, "_DEAD_ROWS", 100)
    newest = empty()
    put(newest, list(range(50)), list(range(50)))
    sizes = []
    for number in range(1000):
        put(newest, [number % 50, number % 7], [number, number])
        sizes.append(newest.nbytes)
    assert max(sizes[500:]) <= max(sizes[:500])
    assert content(newest.freeze(None)).keys() == set(range(50))


def test_what_is_restored_replaces_and_has_not_changed() -> None:
    newest = empty(tracked=True)
    for values in ([1, 2, 3], [4, 5, 6]):
        newest.replace(newest.codec.encode([pa.array([7, None, 9])]), batch(values))
    assert content(newest.freeze(None)) == {7: 4, None: 5, 9: 6}
    assert content(newest.freeze(0)) == {}


def test_more_keys_are_restored_than_the_table_had_room_for() -> None:
    newest = empty()
    for first in (0, 5_000):
        keys = list(range(first, first + 5_000))
        newest.replace(newest.codec.encode([pa.array(keys)]), batch(keys))
    assert content(newest.freeze(None)) == {key: key for key in range(10_000)}
