"""An entry of the report, and which cell of the benchmark it belongs to."""

from typing import Any

Entry = dict[str, Any]


def cell_key(entry: Entry) -> tuple[Any, ...]:
    names = ("query", "keys", "key_type", "parallelism", "checkpoint_interval", "input")
    return tuple(entry[name] for name in names)
