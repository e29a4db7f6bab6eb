"""A simulated subtask: reads its ports one element at a time, and takes part in snapshots as a real
one does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from snapshot_engine.protocol.alignment import AlignmentAction, TakeSnapshot
from snapshot_engine.protocol.elements import (
    MAX_WATERMARK,
    Barrier,
    ChannelId,
    Control,
    EndOfInput,
    Idle,
    RoundEnd,
    SubtaskId,
    Watermark,
)
from snapshot_engine.protocol.loop_end import LoopCounts
from snapshot_engine.protocol.watermarks import WatermarkState
from snapshot_engine.simulator.channels import LogOutlet, Port
from snapshot_engine.simulator.out_edges import CountedOutlet, OutEdge
from snapshot_engine.simulator.records import Batch, count
from snapshot_engine.simulator.topology import Edge
from snapshot_engine.simulator.violations import Violation

if TYPE_CHECKING:
    from snapshot_engine.simulator.region import RegionInstance


class SubtaskState(NamedTuple):
    """What a snapshot holds; nothing in it may change later."""

    own: object
    watermarks: WatermarkState
    received: Mapping[int, int]
    """Lanes by edge."""
    sent: Mapping[int, int]
    inputs: Mapping[ChannelId, object]
    """Positions on channels that keep what was sent."""
    outputs: Mapping[ChannelId, object]
    ended: frozenset[ChannelId]
    transactions: tuple[str, ...] = ()


class Subtask:
    """What all kinds share; a kind overrides `process`, `on_watermark`, `flush` and its own state."""

    def __init__(self, id: SubtaskId, instance: RegionInstance, restored: SubtaskState | None) -> None:
        world = instance.world
        self.id = id
        self.instance = instance
        self.world = world
        self.random = world.random
        self.finished = False
        edges = {edge.id for edge, _ in world.topology.inputs[id]}
        self.inside = instance.channels_inside
        self.arrived = 0
        self.received: dict[int, int] = dict(restored.received) if restored else dict.fromkeys(edges, 0)
        self.ended: set[ChannelId] = set(restored.ended) if restored else set()
        self.ports: list[Port] = [
            instance.make_port(edge, channel, restored) for edge, channel in world.topology.inputs[id]
        ]
        self.open: list[Port] = [port for port in self.ports if port.channel not in self.ended]
        self.outs = [self._out_edge(edge, restored) for edge in world.topology.outputs[id]]
        aligned = world.topology.aligned_inputs(id)
        self.alignment = world.parts.alignment(
            aligned,
            world.config.mode,
            ended=[channel for channel in self.ended if channel in aligned],
            restored=instance.settled,
        )
        self.watermarks = world.parts.watermarks(
            [port.channel for port in self.ports if not port.edge.feedback],
            restored.watermarks if restored else None,
        )
        self._inputs_ended_told = not aligned
        self.restore(restored.own if restored else None)

    def _out_edge(self, edge: Edge, restored: SubtaskState | None) -> OutEdge:
        outlets = self.instance.make_outlets(edge, self.id.index, restored)
        out = OutEdge(edge, outlets, self.world.records.key, restored.sent[edge.id] if restored else 0)
        if self.inside:
            out.outlets = [CountedOutlet(each, out) if each.channel in self.inside else each for each in outlets]
        return out

    # What a kind does.

    def restore(self, own: object) -> None:
        pass

    def process(self, batch: Batch) -> None:
        self.emit(batch)

    def on_watermark(self, timestamp: int) -> None:
        pass

    def on_round_end(self, channel: ChannelId, round: int) -> None:
        """It goes no further than the loop."""

    def before_snapshot(self, checkpoint: int) -> None:
        pass

    def own_state(self) -> object:
        return None

    def transactions(self) -> tuple[str, ...]:
        return ()

    def on_completed(self, checkpoint: int) -> None:
        pass

    def on_aborted(self, checkpoint: int) -> None:
        pass

    # One step: one element.

    def step(self) -> bool:
        if self.finished or self._is_held_back():
            return False
        blocked = self.alignment.blocked
        ready = [port for port in self.open if port.channel not in blocked and port.ready()]
        if not ready:
            return False
        port = ready[int(self.random.random() * len(ready))] if len(ready) > 1 else ready[0]
        element = port.take(self.random)
        if type(element) is tuple:
            if port.channel in self.inside:
                self.arrived += len(element)
            self.received[port.edge.id] += count(element)
            self.watermarks.active(port.channel)
            self.process(element)
        elif element is not None:
            self._control(port, element)
        return True

    def _is_held_back(self) -> bool:
        for out in self.outs:
            for outlet in out.outlets:
                if outlet.full:
                    return True
        return False

    def _control(self, port: Port, element: object) -> None:
        channel = port.channel
        if type(element) is Barrier:
            port.barrier(element.checkpoint)
            self.watermarks.barrier(channel, element.checkpoint)
            self.act(self.alignment.barrier(channel, element, self.world.now))
            if channel in self.alignment.blocked:
                self._must_not_be_over(element.checkpoint)
        elif type(element) is Watermark:
            self._advance(self.watermarks.watermark(channel, element.timestamp))
        elif type(element) is Idle:
            was_idle = self.watermarks.all_idle
            self._advance(self.watermarks.idle(channel))
            if self.watermarks.all_idle and not was_idle:
                self.broadcast(element)
        elif type(element) is EndOfInput:
            self._end(port)
        elif type(element) is RoundEnd:
            self.on_round_end(channel, element.round)

    def _must_not_be_over(self, checkpoint: int) -> None:
        if checkpoint in self.instance.over_before:
            raise Violation(f"{self.id} aligned {checkpoint}, which was over when this attempt began")

    def _advance(self, watermark: int | None) -> None:
        if watermark is not None:
            self.on_watermark(watermark)
            self.broadcast(Watermark(watermark))

    def _end(self, port: Port) -> None:
        self.open.remove(port)
        self.ended.add(port.channel)
        self._advance(self.watermarks.end(port.channel))
        self.act(self.alignment.end(port.channel, self.world.now))
        if not self.open:
            self.end_of_inputs()
        elif self.alignment.all_ended and not self._inputs_ended_told:
            self.tell_inputs_ended()

    def end_of_inputs(self) -> None:
        self.finish()

    def tell_inputs_ended(self) -> None:
        """No barrier will come in-band any more, but committed or feedback channels are still open."""
        self._inputs_ended_told = True
        self.instance.send("inputs_ended", self.id.index, self.id)

    def come_up(self) -> None:
        """After a restore: say again what the driver may not know."""
        if self.ports and not self.open:
            self.finish()
        elif self.alignment.all_ended and not self._inputs_ended_told:
            self.tell_inputs_ended()

    def finish(self) -> None:
        """All inputs have ended: hand in the final state."""
        self.finished = True
        self.before_snapshot(self.alignment.settled)
        self.say_end()
        self.instance.write_final(self)

    def say_end(self) -> None:
        self.broadcast(EndOfInput())

    def end_logs(self) -> None:
        """Restored as finished: a new log has to know that nothing will come."""
        for out in self.outs:
            for outlet in out.outlets:
                if type(outlet) is LogOutlet:
                    outlet.push(EndOfInput())

    # Output.

    def emit(self, batch: Batch) -> None:
        for out in self.outs:
            out.emit(batch)

    def broadcast(self, element: Control) -> None:
        for out in self.outs:
            for outlet in out.outlets:
                outlet.push(element)

    # Snapshots.

    def trigger(self, barrier: Barrier, stop: bool) -> None:
        if not self.finished:
            self.act(self.alignment.trigger(barrier, self.world.now))

    def abort(self, checkpoint: int) -> None:
        self.act(self.alignment.abort(checkpoint, self.world.now))
        self.on_aborted(checkpoint)

    def completed(self, checkpoint: int) -> None:
        self.on_completed(checkpoint)
        for out in self.outs:
            for outlet in out.outlets:
                outlet.completed(checkpoint)

    def act(self, actions: list[AlignmentAction]) -> None:
        for action in actions:
            if isinstance(action, TakeSnapshot):
                self._take_snapshot(action)
            else:
                self.instance.send("decline", self.id.index, self.id, action.checkpoint, action.reason)

    def _take_snapshot(self, action: TakeSnapshot) -> None:
        checkpoint = action.barrier.checkpoint
        self._must_not_be_over(checkpoint)
        self.before_snapshot(checkpoint)
        for out in self.outs:
            for outlet in out.outlets:
                outlet.before_snapshot(checkpoint)
        state = self.state(checkpoint)
        self.broadcast(action.barrier)
        self.hand_in(checkpoint, state)

    def hand_in(self, checkpoint: int, state: SubtaskState) -> None:
        self.instance.write_snapshot(self, checkpoint, state)

    def state(self, checkpoint: int) -> SubtaskState:
        watermarks = self.watermarks.snapshot(checkpoint)
        return SubtaskState(
            self.own_state(),
            watermarks,
            dict(self.received),
            {out.edge.id: out.sent for out in self.outs},
            {port.channel: port.position(checkpoint) for port in self.ports},
            {outlet.channel: outlet.state() for out in self.outs for outlet in out.outlets},
            frozenset(channel for channel, time in watermarks.channels.items() if time.ended),
            self.transactions(),
        )

    # The end of a loop.

    @property
    def sent_inside(self) -> int:
        return sum(out.sent_inside for out in self.outs)

    def loop_counts(self) -> LoopCounts:
        """For the driver, which finds out whether the region's loop is done."""
        outside = any(port.channel not in self.inside for port in self.open)
        quiet = self.finished or (bool(self.ports) and not outside)
        over = self.finished or self.watermarks.current == MAX_WATERMARK
        return LoopCounts(self.sent_inside, self.arrived, quiet, time_is_over=over)

    def end_of_time(self) -> None:
        self.on_watermark(MAX_WATERMARK)
        self.broadcast(Watermark(MAX_WATERMARK))
