"""Reads pieces of state, and tells of each that was read."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from snapshot_engine.operators.operator import StateReader
from snapshot_engine.state.handles import PieceHandle


class ToldReader:
    """`on_read` is called in the reader's own thread, so that nothing is told while it hangs."""

    def __init__(self, reader: StateReader, on_read: Callable[[], None]) -> None:
        self._reader = reader
        self._on_read = on_read

    def read_table(self, handle: PieceHandle) -> pa.Table:
        table = self._reader.read_table(handle)
        self._on_read()
        return table

    def read_bytes(self, handle: PieceHandle) -> bytes:
        data = self._reader.read_bytes(handle)
        self._on_read()
        return data
