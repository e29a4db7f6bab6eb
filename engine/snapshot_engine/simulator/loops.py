"""A loop: its head, which receives what comes back at any time, and the end of its body, which sends it back."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, cast

from snapshot_engine.protocol.alignment import TakeSnapshot
from snapshot_engine.protocol.elements import MAX_WATERMARK, Barrier, ChannelId, EndOfInput, RoundEnd, Watermark
from snapshot_engine.protocol.loop_end import LoopCounts
from snapshot_engine.protocol.loop_log import AcknowledgeLoop, LoopAction, LoopContents
from snapshot_engine.protocol.round_ends import NO_ROUND, RoundEnds
from snapshot_engine.simulator.channels import QueuePort
from snapshot_engine.simulator.records import Batch, count
from snapshot_engine.simulator.subtask import Subtask, SubtaskState
from snapshot_engine.simulator.topology import Kind
from snapshot_engine.simulator.violations import Violation


class HeadState(NamedTuple):
    counts: int
    time_is_over: bool
    contents: LoopContents


class Head(Subtask):
    def restore(self, own: object) -> None:
        state = own if isinstance(own, HeadState) else HeadState(0, False, LoopContents())
        self.counts, self.time_is_over, contents = state
        feedback = set(self.world.topology.feedback_inputs(self.id))
        self.feedback = [cast(QueuePort, port) for port in self.ports if port.channel in feedback]
        self.open = [port for port in self.open if port.channel not in feedback]
        self.edge_of = {port.channel: port.edge.id for port in self.feedback}
        self.loop = self.world.parts.loop_log(list(feedback), contents, rounds=self.world.config.rounds)
        self.snapshots: dict[int, SubtaskState] = {}  # taken, and waiting for their log
        self.ending = False
        self.said_end = False
        self.rounds_ended = -1  # in this attempt

    def own_state(self) -> HeadState:
        """The log is filled in when it is whole."""
        return HeadState(self.counts, self.time_is_over, LoopContents())

    def step(self) -> bool:
        """Receive, process what came back, or do what any subtask does; receiving goes before everything."""
        if self.finished:
            return False
        waiting = [port for port in self.feedback if port.queue]
        if waiting and self.random.random() < 0.7:
            self._receive(waiting[int(self.random.random() * len(waiting))])
            return True
        if self.loop.has_work and self.random.random() < 0.6 and not self._is_held_back():
            self._go_round()
            return True
        return super().step()

    def _receive(self, port: QueuePort) -> None:
        element = port.take(self.random)
        if type(element) is tuple:
            self.arrived += len(element)
            self.loop.arrived(port.channel, element)
        elif type(element) is Barrier:
            self._act_on_loop(self.loop.returned(port.channel, element.checkpoint))
        elif type(element) is RoundEnd:
            self.loop.round_ended(port.channel, element.round)
        elif type(element) is EndOfInput:
            self._act_on_loop(self.loop.ended(port.channel))
            if self.loop.all_ended:
                self.finish()

    def _go_round(self) -> None:
        taken = self.loop.take()
        assert taken is not None
        channel, batch = cast(tuple[ChannelId, Batch], taken)
        self.received[self.edge_of[channel]] += count(batch)
        if self.loop.rounds:
            self._must_be_of_this_round(batch)
        self.process(batch)

    def _must_be_of_this_round(self, batch: Batch) -> None:
        for record in batch:
            if self.world.records.round(record) != self.loop.round and self.world.is_exact:
                raise Violation(f"{self.id} is in round {self.loop.round} but processes {record}")

    def process(self, batch: Batch) -> None:
        self.counts += count(batch)
        self.emit(batch)

    # Snapshots: acknowledged when the barrier has gone round.

    def act(self, actions: list[object]) -> None:  # type: ignore[override]
        for action in actions:
            super().act([action])  # type: ignore[list-item]
            if isinstance(action, TakeSnapshot):
                self._act_on_loop(self.loop.snapshot_taken(action.barrier.checkpoint))

    def hand_in(self, checkpoint: int, state: SubtaskState) -> None:
        self.snapshots[checkpoint] = state

    def _act_on_loop(self, actions: list[LoopAction]) -> None:
        for action in actions:
            if not isinstance(action, AcknowledgeLoop):
                self.snapshots.pop(action.checkpoint, None)
                self.instance.send("decline", self.id.index, self.id, action.checkpoint, action.reason)
            elif (state := self.snapshots.pop(action.checkpoint, None)) is not None:
                own = cast(HeadState, state.own)._replace(contents=action.contents)
                super().hand_in(action.checkpoint, state._replace(own=own))

    def on_aborted(self, checkpoint: int) -> None:
        self.loop.abort(checkpoint)
        self.snapshots.pop(checkpoint, None)

    # The end: counted by the driver.

    def _advance(self, watermark: int | None) -> None:
        """That the regular inputs have ended is not yet the end of time: the loop may go on."""
        if watermark != MAX_WATERMARK:
            super()._advance(watermark)

    def end_of_inputs(self) -> None:
        self.tell_inputs_ended()
        self.go_on_ending()

    def come_up(self) -> None:
        """Committed inputs may still be open; then the end is counted in vain for a while."""
        if self.alignment.all_ended:
            self.tell_inputs_ended()

    def trigger(self, barrier: Barrier, stop: bool) -> None:
        if not self.said_end:  # no barrier follows the end
            super().trigger(barrier, stop)

    def hear(self, kind: str, number: int) -> None:
        """The driver's word, which may come again."""
        if kind == "open_round":
            self.loop.open_round(number)
        elif kind == "round":
            self.loop.next_round(number)
        elif kind == "round_end":
            self.end_round(number)
        elif kind == "final_watermark":
            self.let_time_run_out()
        elif kind == "end_loop":
            self.end_loop()

    def let_time_run_out(self) -> None:
        if not self.time_is_over:
            self.time_is_over = True
            self.broadcast(Watermark(MAX_WATERMARK))

    def end_round(self, round: int) -> None:
        if round > self.rounds_ended:
            self.rounds_ended = round
            self.broadcast(RoundEnd(round))

    def end_loop(self) -> None:
        self.ending = True
        self.go_on_ending()

    def go_on_ending(self) -> None:
        """The end goes out when it is told and the regular inputs (of an inner loop, the outer one) have ended."""
        if self.ending and not self.open and not self.said_end:
            self.said_end = True
            self.broadcast(EndOfInput())

    def say_end(self) -> None:
        """It went out long ago: what is left is to hand in the final state."""

    def loop_counts(self) -> LoopCounts:
        outside = any(port.channel not in self.inside for port in self.open)
        rounds = self.loop.rounds
        return LoopCounts(
            self.sent_inside,
            self.arrived,  # what lies in a connection does not count
            self.loop.quiet and not outside,
            self.loop.waiting if rounds else 0,
            self.loop.round if rounds else None,
            self.loop.round_over,
            self.time_is_over,
            self.loop.arriving if rounds else None,
            self.loop.pending,
        )


class BodyState(NamedTuple):
    over: int = NO_ROUND
    held: Batch = ()
    """What goes round again when this round has ended."""


class Body(Subtask):
    """The end of a loop: what has rounds before it goes back to the head with one less, the rest leaves.

    In a loop inside a loop, the inner one takes the odd rounds and the outer one the even. With rounds some records
    wait here for the end of theirs.
    """

    def restore(self, own: object) -> None:
        state = own if isinstance(own, BodyState) else BodyState()
        self.held = state.held
        self.back = [out for out in self.outs if out.edge.feedback]
        self.out = [out for out in self.outs if not out.edge.feedback]
        self.inner = self.id.vertex.startswith("inner")
        self.rounds = self.world.config.rounds
        looped = [port.channel for port in self.ports if port.edge.producer.kind in (Kind.HEAD, Kind.BODY)]
        self.round_ends = RoundEnds(looped, state.over)

    def own_state(self) -> BodyState:
        return BodyState(self.round_ends.over, self.held)

    def process(self, batch: Batch) -> None:
        records = self.world.records
        if self.watermarks.current == MAX_WATERMARK and self.world.is_exact:
            raise Violation(f"{self.id} was told that no event time is left, but gets {batch}")
        leaving, back = [], []
        for record in batch:
            if self.rounds and records.round(record) <= self.round_ends.over and self.world.is_exact:
                raise Violation(f"{self.id} has seen the end of round {self.round_ends.over} but gets {record}")
            if not records.goes_back(record, self.inner):
                leaving.append(record)
            elif self.rounds and records.key[record] == 0:
                self.held = (*self.held, record)
            else:
                back.append(record)
        self._send_back(back)
        if self.world.config.shows_rounds:
            leaving += [record % records.real for record in batch if records.goes_back(record, self.inner)]
        if leaving:
            for out in self.out:
                out.emit(tuple(leaving))

    def _send_back(self, batch: Collection[int]) -> None:
        """With two feedback edges, along them in turn."""
        records, width = self.world.records, len(self.back)
        for number, out in enumerate(self.back):
            part = tuple([record - records.real for record in batch if records.hops(record) % width == number])
            if part:
                out.emit(part)

    def on_round_end(self, channel: ChannelId, round: int) -> None:
        passed_on = self.round_ends.ended(channel, round)
        if passed_on is None:
            return
        if passed_on.is_news:
            held, self.held = self.held, ()
            self._send_back(held)
        self.broadcast(RoundEnd(passed_on.round))

    def loop_counts(self) -> LoopCounts:
        over = self.round_ends.over if self.rounds else None
        return super().loop_counts()._replace(round_over=over)
