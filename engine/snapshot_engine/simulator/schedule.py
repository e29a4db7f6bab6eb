"""One schedule from one seed: a random job, random settings, random faults; run to its end and checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.elements import Mode
from snapshot_engine.protocol.exchanges import Exchange
from snapshot_engine.protocol.failover import Strategy
from snapshot_engine.simulator.faults import Faults
from snapshot_engine.simulator.parts import Parts
from snapshot_engine.simulator.random_jobs import random_loop, random_topology, with_side_sink
from snapshot_engine.simulator.records import random_records
from snapshot_engine.simulator.topology import Topology
from snapshot_engine.simulator.world import World, WorldConfig

ALL_PIPELINED = [Exchange.PIPELINED]
MIXED = [Exchange.PIPELINED, Exchange.PIPELINED, Exchange.COMMITTED, Exchange.DURABLE, Exchange.MEMORY]
MOST_FAULTS = 8
KEEPING_TOGETHER = 0x5EED
REAL = Parts()


@dataclass(frozen=True)
class Jobs:
    """What kind of jobs schedules are made of."""

    exchanges: tuple[Exchange, ...] = ()
    """Of these the edges have one; none: the usual mixture."""
    loops: float = 0.25
    """How many of them have loops."""
    side_sinks: float = 0.15
    """How many of those without loops have a vertex whose output goes to a sink of its own as well."""
    drifts: float = 0.2
    """In how many of them sources keep together in event time."""
    fewest_faults: int = 0
    bad_swaps: float = 0.12
    """How many of the changes of `current` go wrong in storage."""
    fewest_subtasks: int = 1
    """Of each vertex in jobs with loops."""
    long_loops: bool = False
    """Few records that go round for long, each time with a copy that leaves, and a slot that hears late: seldom is
    much in flight, and never nothing.
    """


ANY = Jobs()


@dataclass
class Outcome:
    seed: int
    violation: str | None
    faults: Counter[str] = field(default_factory=Counter)
    steps: int = 0
    checkpoints: int = 0
    covered: frozenset[str] = frozenset()


def run_schedule(
    seed: int, parts: Parts = REAL, jobs: Jobs = ANY, note: Callable[[str], None] | None = None
) -> Outcome:
    """Any exception is a violation: the protocols' own errors say that something impossible has happened."""
    random = Random(seed)
    exchanges = list(jobs.exchanges) or (ALL_PIPELINED if random.random() < 0.4 else MIXED)
    if random.random() < jobs.loops:
        topology = random_loop(random, exchanges, jobs.fewest_subtasks)
    else:
        topology = random_topology(random, exchanges)
        aside = Random(~seed)  # those without are the same as if there were none
        if aside.random() < jobs.side_sinks:
            topology = with_side_sink(aside, topology, exchanges)
    records = random_records(random, topology, jobs.long_loops)
    config = _random_config(random, topology, jobs.long_loops)
    together = Random(seed ^ KEEPING_TOGETHER)
    if together.random() < jobs.drifts:
        config = replace(config, max_drift=1 + int(together.random() * 6))
    budget = jobs.fewest_faults + int(random.random() * (MOST_FAULTS + 1 - jobs.fewest_faults))
    faults = Faults(random, budget, jobs.bad_swaps)
    world = World(random, topology, records, config, faults, parts, note)
    if note is not None:
        note(f"seed {seed}: {topology.describe()}")
        note(f"{config}")
    violation = None
    try:
        world.run()
    except Exception as error:
        violation = f"{type(error).__name__}: {error}"
        if note is not None:
            note(f"violation: {violation}")
            raise
    return Outcome(seed, violation, faults.counts, world.steps, world.storage.version, frozenset(world.covered))


def _random_config(random: Random, topology: Topology, long_loops: bool) -> WorldConfig:
    mode = Mode.EXACTLY_ONCE if random.random() < 0.85 else Mode.AT_LEAST_ONCE
    loops = bool(topology.loop_regions())  # their barriers have to go round
    interval = 0.15 + random.random() * 0.6
    checkpoints = CheckpointConfig(
        interval=interval,
        min_pause=interval * random.random() * 0.5,
        timeout=(2.0 + random.random() * 3.0 + 0.1 * len(topology.subtasks) ** 1.5) * (3 if loops else 1),
        max_concurrent=1 + int(random.random() * 3),
        tolerable_failures=int(random.random() * 4),
        mode=mode,
    )
    candidates = topology.deterministic_regions()
    return WorldConfig(
        mode=mode,
        checkpoints=checkpoints,
        retained=1 + int(random.random() * 2),
        strategy=Strategy.ALL if random.random() < 0.1 else Strategy.REGION,
        deterministic=tuple(candidates) if random.random() < 0.6 else (),
        capacity=checkpoints.max_concurrent + 1 + int(random.random() * 4),  # barriers alone must not fill it
        memory_budget=3 + int(random.random() * 20),
        watermark_delay=int(random.random() * 3),
        rounds=random.random() < 0.3,
        shows_rounds=len(topology.loop_heads()) == 1 and (random.random() < 0.5 or long_loops),
        wave_pause=0.02 + random.random() * 0.3,
        fault_rate=0.002 + random.random() * 0.02,
        slow_slot=int(random.random() * 2) if loops and (random.random() < 0.3 or long_loops) else None,
    )
