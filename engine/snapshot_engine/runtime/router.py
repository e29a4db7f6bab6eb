"""The outgoing side of a subtask: from its last operator to the channels of its edges.

Rows wait here until a batch is worth sending, or until there is nothing else to do: batches are large under load and
leave within milliseconds when it is quiet. Control elements go out behind all rows before them, at once but for
watermarks: those wait for rows that are being combined, since each of them would end that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from snapshot_engine.channels.frames import Element
from snapshot_engine.graph.job_graph import JobEdge, Partitioning
from snapshot_engine.kernels.partition import HashPartitioner
from snapshot_engine.operators.operator import Data
from snapshot_engine.operators.records import Records, to_arrow
from snapshot_engine.operators.row_combiner import RowCombiner
from snapshot_engine.protocol.elements import ChannelId, Control, Idle, RoundEnd, Watermark

ENOUGH_ROWS = 8192
"""A batch with this many rows is sent at once: waiting for more would save nothing."""


class Outbound(Protocol):
    """The sending end of a channel."""

    channel: ChannelId

    def has_room(self) -> bool: ...
    def send(self, element: Element) -> None: ...
    def close(self) -> None: ...


class EdgeOutput:
    """One edge's channels from one subtask, in the order of the consumers."""

    def __init__(self, edge: JobEdge, outbounds: Sequence[Outbound], key_groups: int) -> None:
        self.edge = edge
        self._outbounds = outbounds
        self._pending: list[list[pa.RecordBatch]] = [[] for _ in outbounds]
        self._pending_rows = [0] * len(outbounds)
        self._next = 0
        self.rows_sent = 0
        """Over all channels: a row that goes to several counts once for each, and several that were combined once."""
        self.inside = True
        """Whether the consumers belong to the same region."""
        self.carries_rounds = False
        self._partitioner = None
        self._combiner = None if edge.combining is None else RowCombiner(edge.combining)
        self._held: Watermark | None = None
        """The newest of those that wait for the rows that the combiner gathers."""
        if edge.partitioning is Partitioning.HASH and len(outbounds) > 1:
            self._partitioner = HashPartitioner(edge.key_columns, len(outbounds), key_groups)

    def has_room(self) -> bool:
        return all(outbound.has_room() for outbound in self._outbounds)

    @property
    def holds_rows(self) -> bool:
        """Rows that are not in `rows_sent` yet."""
        return self._combiner is not None and self._combiner.holds_rows

    def send(self, batch: pa.RecordBatch) -> None:
        if self._combiner is not None:
            for part in self._combiner.combine(batch):
                self._distribute(part)
        elif self.edge.columns is not None:
            self._distribute(batch.select(list(self.edge.columns)))
        else:
            self._distribute(batch)

    def _distribute(self, batch: pa.RecordBatch) -> None:
        if self._partitioner is not None:
            for index, part in enumerate(self._partitioner.split(batch)):
                if part is not None:
                    self._add(index, part)
        elif self.edge.partitioning is Partitioning.BROADCAST:
            for index in range(len(self._outbounds)):
                self._add(index, batch)
        else:
            self._add(self._next, batch)
            if self.edge.partitioning is Partitioning.REBALANCE:
                self._next = (self._next + 1) % len(self._outbounds)

    def send_control(self, element: Control) -> None:
        if self.edge.feedback and isinstance(element, Watermark | Idle):
            return  # event time comes into a loop from outside only
        if isinstance(element, Watermark) and self.holds_rows:
            self._held = element
            return
        self.flush()
        self._send_to_all(element)

    def flush(self, *, gathered: bool = True) -> None:
        if self._combiner is not None and gathered:
            for batch in self._combiner.take():
                self._distribute(batch)
        for index, rows in enumerate(self._pending_rows):
            if rows:
                self._send_pending(index)
        if self._held is not None and not self.holds_rows:
            self._send_to_all(self._held)
            self._held = None

    def _send_to_all(self, element: Control) -> None:
        for outbound in self._outbounds:
            outbound.send(element)

    def close(self) -> None:
        for outbound in self._outbounds:
            outbound.close()

    def _add(self, index: int, batch: pa.RecordBatch) -> None:
        if self._combiner is not None:
            batch = self._combiner.weighed(batch)
        self._pending[index].append(batch)
        self._pending_rows[index] += batch.num_rows
        self.rows_sent += batch.num_rows
        if self._pending_rows[index] >= ENOUGH_ROWS:
            self._send_pending(index)

    def _send_pending(self, index: int) -> None:
        batches = self._pending[index]
        self._pending[index] = []
        self._pending_rows[index] = 0
        self._outbounds[index].send(batches[0] if len(batches) == 1 else pa.concat_batches(batches))


class Router:
    """What the last operator of a chain has as its output."""

    def __init__(self, edges: Sequence[EdgeOutput]) -> None:
        self._edges = edges
        self._main = [output for output in edges if output.edge.tag is None]
        self._sides = [output for output in edges if output.edge.tag is not None]
        self.rows_out = 0
        self.bytes_out = 0
        self.dirty = False
        self.last_watermark: int | None = None

    def emit(self, data: Data) -> None:
        self._send(self._main, data)

    def emit_side(self, tag: str, data: Data) -> None:
        self._send([output for output in self._sides if output.edge.tag == tag], data)

    def watermark(self, timestamp: int) -> None:
        self.last_watermark = timestamp
        self.broadcast(Watermark(timestamp))

    def idle(self) -> None:
        self.broadcast(Idle())

    def round_end(self, round: int) -> None:
        for output in self._edges:
            if output.carries_rounds:
                output.send_control(RoundEnd(round))

    @property
    def rows_sent_inside(self) -> int:
        """To subtasks of the same region, since the attempt began."""
        return sum(output.rows_sent for output in self._edges if output.inside)

    def broadcast(self, element: Control) -> None:
        for output in self._edges:
            output.send_control(element)

    @property
    def holds_rows(self) -> bool:
        """Rows that are not in `rows_sent_inside` yet."""
        return any(output.holds_rows for output in self._edges)

    def has_room(self) -> bool:
        return all(output.has_room() for output in self._edges)

    def flush(self, *, gathered: bool = True) -> None:
        """Send what waits: when the slot has nothing better to do, and after a few milliseconds at the latest.

        Without `gathered`, rows that are being combined may go on waiting.
        """
        if self.dirty:
            for output in self._edges:
                output.flush(gathered=gathered)
            self.dirty = self.holds_rows

    def close(self) -> None:
        for output in self._edges:
            output.close()

    def _send(self, outputs: Sequence[EdgeOutput], data: Data) -> None:
        if not len(data):
            return
        self.rows_out += len(data)
        if not outputs:
            return
        batch = to_arrow(data, outputs[0].edge.type) if isinstance(data, Records) else data
        self.bytes_out += batch.nbytes
        self.dirty = True
        for output in outputs:
            output.send(batch)
