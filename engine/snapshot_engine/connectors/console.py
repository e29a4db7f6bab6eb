"""Rows on the terminal, as they come."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyarrow as pa

from snapshot_engine.connectors.protocols import Committable, DirectSink, WriterContext
from snapshot_engine.connectors.text_rows import json_lines


class ConsoleSink(DirectSink):
    """Prints a JSON value per line. Rows are shown at once, so after a failure some are shown again."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix

    def __repr__(self) -> str:
        return "ConsoleSink()"

    def open(self, context: WriterContext) -> ConsoleWriter:
        return ConsoleWriter(self.prefix)


class ConsoleWriter:
    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def write(self, batch: pa.RecordBatch) -> None:
        # One write per batch, so that the lines of several subtasks do not get mixed up.
        sys.stdout.write("".join(f"{self._prefix}{line}\n" for line in json_lines(batch)))
        sys.stdout.flush()

    def prepare(self, checkpoint: int) -> Sequence[Committable]:
        return []

    def close(self) -> None:
        """Nothing is held."""
