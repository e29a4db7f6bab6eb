"""An entry of the report, and which cell of the benchmark it belongs to."""

from typing import Any

Entry = dict[str, Any]

OUR_ENGINE = "snapshot-engine"


def is_ours(engine: str) -> bool:
    """This project's engine, in whatever variant: their names begin with its name."""
    return engine.startswith(OUR_ENGINE)


def cell_key(entry: Entry) -> tuple[Any, ...]:
    names = ("query", "keys", "key_type", "parallelism", "checkpoint_interval", "input")
    return tuple(entry[name] for name in names)
