"""How elements look on the wire: a fixed header, then an Arrow IPC message or nothing.

    kind u32 | reserved u32 | length of what follows u64 | a u64 | b f64

`a` is the number of the batch's first record in its channel, the checkpoint of a barrier, a watermark, or a round. `b`
is the time at which a barrier was triggered. Nothing here is ever unpickled: what arrives can only be columns.
"""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from snapshot_engine.protocol.elements import Barrier, Control, EndOfInput, Idle, RoundEnd, Watermark

HEADER = struct.Struct("<IIQqd")
MAX_PAYLOAD = 1 << 31

_BATCH, _BARRIER, _WATERMARK, _IDLE, _END, _ROUND_END = 1, 2, 3, 4, 5, 6

Element: TypeAlias = pa.RecordBatch | Control


class BadFrame(Exception):
    """The peer sent something that is no frame: a bug, or not one of ours."""


def encode(element: Element, position: int) -> list[memoryview]:
    """The buffers of one element, in order. `position` is the number of the first record of a batch."""
    if isinstance(element, pa.RecordBatch):
        return encode_batch(memoryview(element.serialize()), position)
    return [memoryview(_encode_control(element))]


def encode_batch(payload: memoryview, position: int) -> list[memoryview]:
    """The buffers of a batch that is serialised already."""
    return [memoryview(HEADER.pack(_BATCH, 0, len(payload), position, 0.0)), payload]


def _encode_control(element: Control) -> bytes:
    match element:
        case Barrier():
            return HEADER.pack(_BARRIER, 0, 0, element.checkpoint, element.triggered_at)
        case Watermark():
            return HEADER.pack(_WATERMARK, 0, 0, element.timestamp, 0.0)
        case Idle():
            return HEADER.pack(_IDLE, 0, 0, 0, 0.0)
        case EndOfInput():
            return HEADER.pack(_END, 0, 0, 0, 0.0)
        case RoundEnd():
            return HEADER.pack(_ROUND_END, 0, 0, element.round, 0.0)


def decode_control(kind: int, a: int, b: float) -> Control:
    match kind:
        case 2:
            return Barrier(a, b)
        case 3:
            return Watermark(a)
        case 4:
            return Idle()
        case 5:
            return EndOfInput()
        case 6:
            return RoundEnd(a)
    raise BadFrame(f"frame of unknown kind {kind}")


class FrameReader:
    """Puts frames together from what a non-blocking socket has. Batches are read into memory they keep."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._header = bytearray(HEADER.size)
        self._header_view = memoryview(self._header)
        self._filled = 0
        self._payload: np.ndarray[Any, Any] | None = None
        self._payload_view: memoryview | None = None
        self._position = 0

    def read(self, sock: Any) -> tuple[Element, int, int] | None:
        """The next (element, first record's number, size), or None until more arrives. Raises EOFError at the end."""
        if self._payload_view is None and not self._read_header(sock):
            return None
        if self._payload_view is None:
            return self._control()
        while self._filled < len(self._payload_view):
            count = sock.recv_into(self._payload_view[self._filled :])
            if count == 0:
                raise EOFError
            self._filled += count
        return self._batch()

    def _read_header(self, sock: Any) -> bool:
        while self._filled < HEADER.size:
            count = sock.recv_into(self._header_view[self._filled :])
            if count == 0:
                raise EOFError
            self._filled += count
        kind, _, length, a, _ = HEADER.unpack(self._header)
        if kind == _BATCH:
            if length > MAX_PAYLOAD:
                raise BadFrame(f"frame of {length} bytes")
            self._filled = 0
            self._position = a
            self._payload = np.empty(length, dtype=np.uint8)
            self._payload_view = self._payload.data
        return True

    def _control(self) -> tuple[Element, int, int]:
        kind, _, _, a, b = HEADER.unpack(self._header)
        self._filled = 0
        return decode_control(kind, a, b), 0, 0

    def _batch(self) -> tuple[Element, int, int]:
        payload = self._payload
        assert payload is not None
        self._payload = self._payload_view = None
        self._filled = 0
        batch = pa.ipc.read_record_batch(pa.py_buffer(payload), self._schema)
        return batch, self._position, payload.nbytes
