"""What must hold of every manifest, of every commit, and at the end of a schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from snapshot_engine.protocol.elements import ChannelId, SubtaskId
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.simulator.loops import BodyState, HeadState
from snapshot_engine.simulator.operators import SourceState
from snapshot_engine.simulator.records import LANE_BITS, count, times_seen
from snapshot_engine.simulator.storage import Manifest
from snapshot_engine.simulator.subtask import SubtaskState
from snapshot_engine.simulator.topology import Edge, Kind, Split
from snapshot_engine.simulator.violations import Violation

if TYPE_CHECKING:
    from snapshot_engine.simulator.world import World

States = dict[SubtaskId, SubtaskState]


class Checks:
    def __init__(self, world: World) -> None:
        self._world = world
        self._exact = world.is_exact
        self._markers = ~((1 << (LANE_BITS * world.records.first_marker)) - 1)

    # Every manifest, when it lands.

    def manifest_is_a_cut(self, manifest: Manifest) -> None:
        """All its files are there; what was sent along each edge was received, or is kept in the manifest."""
        states = {s: cast(SubtaskState, self._world.storage.read(n)) for s, n in manifest.states.items()}
        if not self._exact:
            return
        for edge in self._world.topology.edges:
            self._edge_is_cut(manifest, edge, states)
        for subtask, state in states.items():
            self._state_agrees_with_what_passed(manifest, subtask, state)

    def _edge_is_cut(self, manifest: Manifest, edge: Edge, states: States) -> None:
        sent = sum(states[SubtaskId(edge.producer.name, i)].sent[edge.id] for i in range(edge.producer.parallelism))
        received = sum(
            states[SubtaskId(edge.consumer.name, i)].received[edge.id] for i in range(edge.consumer.parallelism)
        )
        if edge.exchange is Exchange.COMMITTED:
            received += sum(self._unread(manifest, channel, states, edge) for channel in edge.channels())
        if edge.feedback:
            received += sum(self._going_round(channel, states, edge) for channel in edge.channels())
        if sent != received:
            what = self._difference(sent, received)
            raise Violation(f"manifest {manifest.key}: along edge {edge.id} sent is not received: {what}")
        if edge.exchange.replays:
            for channel in edge.channels():
                self._positions_agree(manifest, edge, channel, states)

    def _positions_agree(self, manifest: Manifest, edge: Edge, channel: ChannelId, states: States) -> None:
        produced = states[SubtaskId(edge.producer.name, channel.producer)].outputs[channel]
        consumed = states[SubtaskId(edge.consumer.name, channel.consumer)].inputs[channel]
        if produced != consumed:
            raise Violation(f"manifest {manifest.key}: {channel} stands at {produced} and {consumed}")

    def _going_round(self, channel: ChannelId, states: States, edge: Edge) -> int:
        """What the log of a loop holds for one feedback channel."""
        own = cast(HeadState, states[SubtaskId(edge.consumer.name, channel.consumer)].own)
        return sum(count(cast(tuple[int, ...], entry.payload)) for entry in own.contents.entries.get(channel, ()))

    def _unread(self, manifest: Manifest, channel: ChannelId, states: States, edge: Edge) -> int:
        """What lies in the segments behind the reader's position."""
        position = states[SubtaskId(edge.consumer.name, channel.consumer)].inputs[channel]
        first, offset = cast(tuple[int, int], position)
        lanes = 0
        for segment in manifest.segments[channel]:
            entries = cast(tuple[object, ...], self._world.storage.read(str(segment.payload)))
            records = [record for entry in entries if type(entry) is tuple for record in entry]
            lanes += count(tuple(records[offset if segment.number == first else 0 :]))
        return lanes

    def _state_agrees_with_what_passed(self, manifest: Manifest, subtask: SubtaskId, state: SubtaskState) -> None:
        kind = self._world.topology.vertex[subtask.vertex].kind
        got = sum(state.received.values())
        if kind is Kind.BODY:
            self._body_sends_on(manifest, subtask, state, got)
            return
        if kind is Kind.SOURCE:
            split = self._world.records.splits[subtask.vertex, subtask.index]
            got = count(tuple(split[: cast(SourceState, state.own).position]))
        elif kind is Kind.STEP and state.own != got:
            raise Violation(f"manifest {manifest.key}: the state of {subtask} is not what it received")
        elif kind is Kind.HEAD and cast(HeadState, state.own).counts != got:
            raise Violation(f"manifest {manifest.key}: the state of {subtask} is not what went round")
        elif kind is Kind.WINDOW:
            got -= sum(count(batch) for batch in cast(dict[object, tuple[int, ...]], state.own).values())
        for edge in self._world.topology.outputs[subtask]:
            copies = edge.consumer.parallelism if edge.split is Split.BROADCAST else 1
            sent = state.sent[edge.id]
            if kind is Kind.WINDOW:
                sent &= ~self._markers
            if sent != got * copies:
                what = self._difference(got * copies, sent)
                raise Violation(f"manifest {manifest.key}: {subtask} did not pass on what it had: {what}")

    def _body_sends_on(self, manifest: Manifest, subtask: SubtaskId, state: SubtaskState, got: int) -> None:
        """Each record it received is held, has left, or went round again with one round less before it."""
        records = self._world.records
        going_back = records.lanes_that_go_back(subtask.vertex.startswith("inner"))
        copies = records.outside(got & going_back) if self._world.config.shows_rounds else 0
        got -= count(cast(BodyState, state.own).held)
        expected = {True: (got & going_back) >> (LANE_BITS * records.real), False: (got & ~going_back) + copies}
        for back, lanes in expected.items():
            edges = [edge for edge in self._world.topology.outputs[subtask] if edge.feedback is back]
            if sum(state.sent[edge.id] for edge in edges) != lanes:
                raise Violation(f"manifest {manifest.key}: {subtask} did not send on what it had")

    # Every commit.

    def nothing_is_committed_that_the_latest_does_not_hold(self) -> None:
        """What is visible is at most what the sinks had received at the latest manifest."""
        latest = self._world.storage.latest()
        if not self._exact or latest is None:
            return
        for sink, visible in self._world.outside.committed.items():
            received = self._received_by(sink, latest)
            if visible != received and any(
                times_seen(visible, r) > times_seen(received, r) for r in range(len(self._world.records.key))
            ):
                what = self._difference(received, visible)
                raise Violation(f"sink {sink} shows what manifest {latest.key} does not hold: {what}")

    def commit_shows_all(self, manifest: Manifest) -> None:
        """After the latest manifest is committed, exactly what its sinks had received is visible."""
        if not self._exact or self._world.storage.latest() is not manifest:
            return
        for vertex in self._world.topology.vertices:
            if vertex.kind is Kind.SINK:
                received = self._received_by(vertex.name, manifest)
                visible = self._world.outside.committed.get(vertex.name, 0)
                if visible != received:
                    what = self._difference(received, visible)
                    raise Violation(f"after the commit of {manifest.key} sink {vertex.name} shows: {what}")

    def _received_by(self, sink: str, manifest: Manifest) -> int:
        total = 0
        for index in range(self._world.topology.vertex[sink].parallelism):
            state = cast(SubtaskState, self._world.storage.read(manifest.states[SubtaskId(sink, index)]))
            total += sum(state.received.values())
        return total

    # At the end.

    def every_record_is_there(self) -> None:
        world = self._world
        for vertex in world.topology.vertices:
            if vertex.kind is not Kind.SINK:
                continue
            times = world.topology.multiplicity[vertex.name]
            visible = world.outside.committed.get(vertex.name, 0)
            for (source, _), records in world.records.splits.items():
                for record in records:
                    left = record % world.records.real
                    copies = 1 + world.records.rounds[left] if world.config.shows_rounds else 1
                    expected = times.get(source, 0) * copies
                    self._record_is_there(vertex.name, left, expected, times_seen(visible, left))
            if self._exact:
                self._windows_fired_once(vertex.name, visible)

    def _record_is_there(self, sink: str, record: int, expected: int, seen: int) -> None:
        if seen < expected or (self._exact and seen != expected):
            raise Violation(f"record {record} is {seen} times in the output of {sink}, not {expected} times")

    def _windows_fired_once(self, sink: str, visible: int) -> None:
        topology = self._world.topology
        most = sum(topology.multiplicity[sink].get(v.name, 0) for v in topology.vertices if v.kind is Kind.WINDOW)
        for marker in range(self._world.records.first_marker, len(self._world.records.key)):
            if times_seen(visible, marker) > most:
                raise Violation(f"window {marker} fired more than once in the output of {sink}")

    def nobody_was_waited_for_in_vain(self) -> None:
        """Checkpoints are held for slots that say when they have caught up: those that keep a log. A bounded job
        comes to its end without; others would never have a checkpoint again.
        """
        for driver in self._world.drivers:
            for region, slot in cast(frozenset[tuple[int, int]], driver.coordinator.holds):
                instance = self._world.current.get((driver.serial, region))
                if instance is None or slot not in instance.alive:
                    continue
                if not any(channel.producer == slot for channel in instance.logs):
                    raise Violation(f"checkpoints wait for slot {slot} of region {region}, which keeps no log")

    def each_failure_was_handled_once(self) -> None:
        for driver in self._world.drivers:
            handled = len(driver.recovery.budget.history) if driver.recovery else 0
            real = sum(each is driver for each, _ in self._world.reasons_to_fail)
            if handled > real:
                raise Violation(f"driver {driver.serial} handled {handled} failures, but {real} happened")

    def _difference(self, expected: int, found: int) -> str:
        """Records with the times they were expected and found; the first few."""
        known = range(len(self._world.records.key))
        pairs = [(r, times_seen(expected, r), times_seen(found, r)) for r in known]
        differ = [f"{r} ({was}->{now})" for r, was, now in pairs if was != now]
        return ", ".join(differ[:5]) or "an impossible number of them"
