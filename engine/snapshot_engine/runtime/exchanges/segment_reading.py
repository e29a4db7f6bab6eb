"""The receiving end of a stored exchange: reads segments as they are published, in order, each record once."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from snapshot_engine.channels.frames import Element
from snapshot_engine.operators.operator import StateReader
from snapshot_engine.protocol.committed_exchange import Segment, SegmentReader
from snapshot_engine.protocol.elements import ChannelId, EndOfInput
from snapshot_engine.runtime.exchanges.segment_parts import from_table
from snapshot_engine.runtime.exchanges.stored_segments import Filters, StreamId, StreamPosition
from snapshot_engine.storage.errors import CorruptCheckpoint

AHEAD = 2
"""So many segments are fetched or being fetched: the next one is there when the one before it is read."""

Keep = Callable[[pa.RecordBatch], pa.RecordBatch | None]
Fetch = Callable[["SegmentQueue", "Fetched"], None]


class InputNotRead(Exception):
    """What a stored exchange keeps could not be read just now; names the input."""

    def __init__(self, edge: str, channel: ChannelId, error: Exception) -> None:
        super().__init__(f"cannot read the input {edge} (channel {channel}): {error}")
        self.channel = channel


class UnreadableInput(InputNotRead):
    """What a stored exchange kept is gone or damaged: trying again does not help."""


def failed_read(edge: str, channel: ChannelId, error: Exception) -> InputNotRead:
    return (UnreadableInput if isinstance(error, CorruptCheckpoint) else InputNotRead)(edge, channel, error)


@dataclass(slots=True)
class Fetched:
    """One segment on its way from storage. `elements` is set by the fetching thread when it is there."""

    segment: Segment
    stream: StreamId
    elements: list[Element] | None = None
    error: Exception | None = None


@dataclass(slots=True)
class Stream:
    """One stream as one reader reads it: with `keep`, only some of its rows."""

    id: StreamId
    reader: SegmentReader
    filters: Filters = ()
    keep: Keep | None = None
    inherited: bool = False
    fetched: dict[int, Fetched] = field(default_factory=dict)

    def position(self) -> StreamPosition:
        return StreamPosition(self.id, self.reader.position, self.filters)


class SegmentQueue:
    """What a subtask reads like any other channel.

    Streams that a change of parallelism left behind are read first, one after the other; their event times are left
    out, since they are not those of this channel. The last stream is the channel's own.
    """

    def __init__(
        self, channel: ChannelId, port: int, streams: Sequence[Stream], fetch: Fetch, own_ended: bool = False
    ) -> None:
        self.channel = channel
        self.port = port
        self.elements: deque[Element | None] = deque()
        """What can be taken now, before any is left out; None at the end of a segment."""
        self._streams = deque(streams)
        self._fetch = fetch
        self._own_ended = own_ended

    def publish(self, segments: Iterable[Segment]) -> None:
        self._streams[-1].reader.publish(segments)
        self.advance()

    def positions(self) -> list[StreamPosition]:
        return [stream.position() for stream in self._streams]

    def take(self) -> Element | None:
        """The next element; None where there is nothing for the subtask."""
        element = self.elements.popleft()
        if isinstance(element, pa.RecordBatch):
            return self._read(element)
        return self._end_segment() if element is None else element

    def take_slice(self, rows: int) -> Element | None:
        """Like `take`, but at most so many rows of a batch: the rest stays in front."""
        first = self.elements[0]
        if not isinstance(first, pa.RecordBatch) or first.num_rows <= rows:
            return self.take()
        self.elements[0] = first.slice(rows)
        return self._read(first.slice(0, rows))

    def _read(self, batch: pa.RecordBatch) -> pa.RecordBatch | None:
        """The position counts what is left out as well."""
        stream = self._streams[0]
        stream.reader.advance(batch.num_rows)
        return stream.keep(batch) if stream.keep else batch

    def _end_segment(self) -> EndOfInput | None:
        stream = self._streams[0]
        last = stream.reader.finish_segment()
        if last and not stream.inherited:
            return EndOfInput()
        self.advance()
        return None

    def advance(self) -> None:
        """Go on with what is there, and have fetched what comes next."""
        while len(self._streams) > 1 and self._streams[0].reader.current() is None:
            self._streams.popleft()
        stream = self._streams[0]
        self._fetch_ahead(stream)
        current = stream.reader.current()
        if self.elements:
            return
        if current is None and self._own_ended and not stream.inherited:
            self._own_ended = False
            self.elements.append(EndOfInput())
        elif current is not None and stream.fetched[current.number].elements is not None:
            self._open(stream, stream.fetched.pop(current.number))

    def _fetch_ahead(self, stream: Stream) -> None:
        for ahead in range(AHEAD):
            segment = stream.reader.current(ahead)
            if segment is not None and segment.number not in stream.fetched:
                stream.fetched[segment.number] = Fetched(segment, stream.id)
                self._fetch(self, stream.fetched[segment.number])

    def _open(self, stream: Stream, fetched: Fetched) -> None:
        assert fetched.elements is not None
        behind = stream.reader.position.offset
        for element in fetched.elements:
            if not isinstance(element, pa.RecordBatch):
                if behind == 0 and not stream.inherited:
                    self.elements.append(element)
                continue
            skipped = min(behind, element.num_rows)
            behind -= skipped
            rest = element.slice(skipped)
            if rest.num_rows:
                self.elements.append(rest)
        self.elements.append(None)


class SegmentFetcher:
    """Reads segments from storage in a thread of its own, which begins with the first request."""

    def __init__(self, reader: StateReader, schema_of: Callable[[int], pa.Schema], wake: Callable[[], None]) -> None:
        self._reader = reader
        self._schema_of = schema_of
        self._wake = wake
        self._wanted: queue.SimpleQueue[tuple[SegmentQueue, Fetched] | None] = queue.SimpleQueue()
        self._there: queue.SimpleQueue[tuple[SegmentQueue, Fetched]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def fetch(self, reader: SegmentQueue, wanted: Fetched) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="segment-fetcher", daemon=True)
            self._thread.start()
        self._wanted.put((reader, wanted))

    def hand_over(self) -> list[tuple[ChannelId, Exception]]:
        """Let those go on whose segments have come; returns what could not be read."""
        failed = []
        while not self._there.empty():
            reader, fetched = self._there.get()
            if fetched.error is not None:
                failed.append((reader.channel, fetched.error))
            else:
                reader.advance()
        return failed

    def close(self) -> None:
        self._wanted.put(None)

    def _run(self) -> None:
        while (request := self._wanted.get()) is not None:
            reader, fetched = request
            try:
                fetched.elements = self._read(fetched.segment)
            except Exception as error:
                fetched.error = error
            self._there.put((reader, fetched))
            self._wake()

    def _read(self, segment: Segment) -> list[Element]:
        schema = self._schema_of(segment.channel.edge)
        handles: tuple[object, ...] = segment.payload  # type: ignore[assignment]
        tables = [self._reader.read_table(handle) for handle in handles]  # type: ignore[arg-type]
        return [element for table in tables for element in from_table(table, schema)]
