from __future__ import annotations

import pickle

import pytest

from snapshot_engine.state.row_class import row_class

MANY = tuple(f"column{number}" for number in range(40))

NAMES = [
    ("a",),
    ("a", "b", "c"),
    ("self", "row", "replace", "names"),
    ("_", "__", "_row", "__row", "___same", "_0"),
    ("class", "a"),
    ("with space", "a-b", "a"),
    ("ﬁ", "a"),
    MANY,
]


@pytest.mark.parametrize("names", NAMES, ids=lambda names: names[0])
def test_values_are_replaced_by_the_names_of_their_columns(names: tuple[str, ...]) -> None:
    values = tuple(range(len(names)))
    row = row_class(names)(values)
    assert row._replace() == row  # type: ignore[attr-defined]
    for position, name in enumerate(names):
        replaced = row._replace(**{name: None})  # type: ignore[attr-defined]
        assert replaced == (*values[:position], None, *values[position + 1 :])
        assert type(replaced) is type(row)
    everything = {name: -position for position, name in enumerate(names)}
    assert row._replace(**everything) == tuple(everything.values())  # type: ignore[attr-defined]
    assert row == values


@pytest.mark.parametrize("names", [("a", "b"), ("a-b", "b"), MANY], ids=lambda names: names[0])
def test_a_column_that_is_not_there_is_told(names: tuple[str, ...]) -> None:
    row = row_class(names)(range(len(names)))
    with pytest.raises(TypeError, match=rf"^Row\({names[0]}, {names[1]}.*\)\._replace\(\) got .* argument 'nope'"):
        row._replace(**{names[1]: 1, "nope": 2})  # type: ignore[attr-defined]


def test_rows_are_pickled_with_their_names() -> None:
    row = row_class(("a", "b"))((1, 2))
    assert pickle.loads(pickle.dumps(row))._replace(b=3) == (1, 3)
