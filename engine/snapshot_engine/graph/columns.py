"""Looking up columns in a schema, with an answer that helps when one is not there."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

import pyarrow as pa

from snapshot_engine.operators.stream_type import HIDDEN_KEY, HIDDEN_TIME

HIDDEN = frozenset({HIDDEN_KEY, HIDDEN_TIME})


class MissingColumn(ValueError):
    """A column is used that the stream does not have."""


def visible_columns(schema: pa.Schema) -> list[str]:
    """The columns that users know of."""
    return [name for name in schema.names if name not in HIDDEN]


def require_columns(schema: pa.Schema, names: Iterable[str], owner: str = "the stream") -> None:
    """Raise MissingColumn for all `names` that `schema` lacks."""
    missing = [name for name in dict.fromkeys(names) if name not in schema.names]
    if missing:
        raise MissingColumn(_missing_columns(schema, missing, owner))


def _missing_columns(schema: pa.Schema, missing: list[str], owner: str) -> str:
    there = visible_columns(schema)
    wanted = " and ".join(repr(name) for name in missing)
    text = f"{owner} has no column{'s' if len(missing) > 1 else ''} {wanted}"
    suggestions = [match for name in missing for match in get_close_matches(name, there, n=1)]
    if suggestions:
        text += "; did you mean " + " and ".join(repr(name) for name in dict.fromkeys(suggestions)) + "?"
    return f"{text} (columns: {', '.join(there) or 'none'})"


def keep_columns(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """`schema` with only the columns `names`, in the schema's own order."""
    wanted = set(names)
    return pa.schema([field for field in schema if field.name in wanted], metadata=schema.metadata)
