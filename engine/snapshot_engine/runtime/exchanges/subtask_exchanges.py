"""The cut edges of one subtask: what they add to its snapshots, and what they are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from snapshot_engine.channels.queues import InboundQueue
from snapshot_engine.graph.job_graph import JobEdge
from snapshot_engine.operators.operator import Snapshot, StateWriter
from snapshot_engine.runtime.exchanges.exchange_restore import LOGGED
from snapshot_engine.runtime.exchanges.log_reading import NumberedQueue
from snapshot_engine.runtime.exchanges.log_writing import LogOutbound
from snapshot_engine.runtime.exchanges.segment_reading import SegmentQueue
from snapshot_engine.runtime.exchanges.segment_writing import SegmentOutbound, WrittenSnapshot
from snapshot_engine.runtime.exchanges.stored_segments import ReadState, read_uid, written_uid
from snapshot_engine.state.handles import OperatorState

InputQueue = InboundQueue | SegmentQueue


@dataclass
class SubtaskExchanges:
    """Both ends that belong to one subtask, by edge; pipelined ones are not among them."""

    segment_inputs: dict[int, tuple[JobEdge, int, list[SegmentQueue]]] = field(default_factory=dict)
    """With the edge's lineage."""
    segment_outputs: dict[int, tuple[JobEdge, int, list[SegmentOutbound]]] = field(default_factory=dict)
    log_inputs: dict[int, tuple[JobEdge, list[NumberedQueue]]] = field(default_factory=dict)
    log_outputs: dict[int, tuple[JobEdge, list[LogOutbound]]] = field(default_factory=dict)

    @property
    def logs(self) -> list[LogOutbound]:
        return [outbound for _, outbounds in self.log_outputs.values() for outbound in outbounds]

    @property
    def full(self) -> bool:
        return any(outbound.log.full for outbound in self.logs)

    @property
    def under_pressure(self) -> bool:
        return any(outbound.log.under_pressure for outbound in self.logs)

    def kept(self) -> tuple[int, int]:
        """(bytes that are kept, bytes that may be kept) for the metrics."""
        logs = self.logs
        unstored = sum(end.unstored_bytes for _, _, ends in self.segment_outputs.values() for end in ends)
        return sum(end.log.size for end in logs) + unstored, sum(end.log.budget for end in logs)

    def barrier(self, queue: InputQueue, checkpoint: int) -> None:
        if isinstance(queue, NumberedQueue):
            queue.barrier(checkpoint)

    def seal(self, checkpoint: int) -> None:
        """All rows before the barrier have been sent."""
        for _, _, outbounds in self.segment_outputs.values():
            for outbound in outbounds:
                outbound.seal(checkpoint)

    def snapshots(self, checkpoint: int) -> list[Snapshot]:
        """After `seal`, or after the end has been sent."""
        return [*self._written(), *self._read(), *self._logged(checkpoint)]

    def completed(self, checkpoint: int) -> None:
        for _, _, outbounds in self.segment_outputs.values():
            for outbound in outbounds:
                outbound.completed(checkpoint)
        for log in self.logs:
            log.log.completed(checkpoint)

    def _written(self) -> Iterable[Snapshot]:
        for edge, lineage, ends in self.segment_outputs.values():
            numbers = {end.channel.consumer: end.next_number for end in ends}
            sealed = tuple(segment for end in ends for segment in end.named())
            yield WrittenSnapshot(written_uid(edge), lineage, numbers, sealed)

    def _read(self) -> Iterable[Snapshot]:
        for edge, lineage, queues in self.segment_inputs.values():
            positions = tuple(position for queue in queues for position in queue.positions())
            yield _Ready(ReadState(lineage, positions).to_state(read_uid(edge)))

    def _logged(self, checkpoint: int) -> Iterable[Snapshot]:
        for edge, logs in self.log_outputs.values():
            numbers = [[end.channel.consumer, end.log.next_number] for end in logs]
            yield _Ready(_log_state(written_uid(edge), numbers))
        for edge, queues in self.log_inputs.values():
            numbers = [[queue.channel.producer, queue.position(checkpoint)] for queue in queues]
            yield _Ready(_log_state(read_uid(edge), numbers))


@dataclass(frozen=True, slots=True)
class _Ready:
    """Nothing has to be written for it."""

    state: OperatorState

    def write(self, writer: StateWriter) -> OperatorState:
        return self.state


def _log_state(uid: str, numbers: list[Any]) -> OperatorState:
    return OperatorState(uid, LOGGED, meta={"numbers": numbers})
