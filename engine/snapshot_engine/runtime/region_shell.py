"""What the JobMaster knows of a region beyond its run: the connections of its slots, and what they have told."""

from __future__ import annotations

from dataclasses import dataclass, field

from snapshot_engine.protocol.elements import SubtaskId
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.control_server import SlotConnection


@dataclass
class RegionShell:
    """What surrounds a region's run: the connections of its slots, and what they have told."""

    run: RegionRun
    connections: dict[int, SlotConnection] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    """Slots of this attempt that have been restored: they hear what they are told."""
    restored_from: int | None = None
    begins_anew_at: int | None = None
    """The checkpoint from which it is not restored, since its blocking results are to be made again."""
    output_seen: bool = False
    finished_subtasks: set[SubtaskId] = field(default_factory=set)
    catching_up: bool = False
    """Its consumers went on without it."""
    behind: set[int] = field(default_factory=set)
    """Slots of this attempt that have not yet produced again what these had seen: checkpoints wait for them."""
    full: set[int] = field(default_factory=set)
    """Slots that keep as much as they may."""
    pause: m.PauseSources = field(default_factory=lambda: m.PauseSources(False))
    """What its sources were told last."""
