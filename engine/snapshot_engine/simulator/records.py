"""The records of one schedule, and how often each was seen, counted in lanes of one integer.

A record is a small integer. Counting it adds one to its lane of eight bits, so a multiset of records is one
number: snapshots of it are free, and comparing what was sent with what was received is one comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from snapshot_engine.simulator.topology import Kind, Topology

Batch = tuple[int, ...]

LANE_BITS = 8
LANE = (1 << LANE_BITS) - 1
ONE: tuple[int, ...] = tuple(1 << (LANE_BITS * number) for number in range(512))
"""ONE[r] is record r, seen once."""

KEYS = 3
WINDOW = 5  # length in the event time of the schedule


def count(batch: Batch) -> int:
    total = 0
    for record in batch:
        total += ONE[record]
    return total


def times_seen(lanes: int, record: int) -> int:
    return (lanes >> (LANE_BITS * record)) & LANE


@dataclass
class Records:
    """Which records each source subtask has, with their keys and event times.

    Behind the records of the sources come the markers: one for each window of each key, emitted when it
    fires.
    """

    splits: dict[tuple[str, int], list[int]]
    key: list[int]
    time: list[int]
    real: int
    """How many records the sources have. A record that has h rounds of a loop before it is numbered h times this
    higher; where it leaves the loop it has the lowest of its numbers.
    """
    first_marker: int
    """Records from here on are markers."""
    rounds: list[int]
    """How often each goes round in all."""

    def marker(self, key: int, window: int) -> int:
        return self.first_marker + key + KEYS * window

    def hops(self, record: int) -> int:
        """How many rounds of a loop it has before it."""
        return record // self.real

    def round(self, record: int) -> int:
        """How many it has behind it."""
        return self.rounds[record % self.real] - self.hops(record)

    def goes_back(self, record: int, inner: bool) -> bool:
        hops = self.hops(record)
        return bool(hops and (hops % 2 or not inner))

    def lanes_that_go_back(self, inner: bool) -> int:
        return self._going_back[inner]

    def outside(self, lanes: int) -> int:
        """As which records those in `lanes` are known outside of the loop."""
        width = LANE_BITS * self.real
        total = 0
        while lanes:
            total += lanes & ((1 << width) - 1)
            lanes >>= width
        return total

    def __post_init__(self) -> None:
        self._going_back = [
            sum(LANE * ONE[record] for record in range(self.first_marker) if self.goes_back(record, inner))
            for inner in (False, True)
        ]


MANY_ROUNDS = (24, 2)  # at most, and records per source at most: few that go round for long
FEW_ROUNDS = (7, 8)


def random_records(random: Random, topology: Topology, long_loops: bool = False) -> Records:
    splits: dict[tuple[str, int], list[int]] = {}
    key: list[int] = []
    time: list[int] = []
    loops = bool(topology.loop_regions())
    most_rounds, longest = MANY_ROUNDS if loops and (random.random() < 0.3 or long_loops) else FEW_ROUNDS
    for vertex in topology.vertices:
        if vertex.kind is not Kind.SOURCE:
            continue
        for index in range(vertex.parallelism):
            length = (1 if longest < 3 else 3) + int(random.random() * longest)
            splits[vertex.name, index] = list(range(len(key), len(key) + length))
            for position in range(length):
                key.append(int(random.random() * KEYS))
                time.append(max(0, position + int(random.random() * 6) - 3))
    real = len(key)
    rounds = [0] * real
    if loops:
        rounds = [int(random.random() ** 2 * (most_rounds + 1)) for _ in range(real)]
        for split in splits.values():
            split[:] = [record + real * rounds[record] for record in split]
        key *= most_rounds + 1
        time *= most_rounds + 1
    first_marker = len(key)
    windows = max(time) // WINDOW + 1
    key.extend(number % KEYS for number in range(KEYS * windows))
    time.extend(0 for _ in range(KEYS * windows))
    return Records(splits, key, time, real, first_marker, rounds)
