"""The protocol classes a schedule runs on, and the behaviour of the shell around them.

The defaults are the real ones. A planted bug replaces one of them (`planted`), so that a test can show that
the simulator would find it. No protocol code knows of this.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from snapshot_engine.protocol.alignment import Alignment
from snapshot_engine.protocol.committables import Lineage
from snapshot_engine.protocol.coordinator import Coordinator
from snapshot_engine.protocol.exchange_log import ChannelLog
from snapshot_engine.protocol.exchange_receiver import ChannelReceiver
from snapshot_engine.protocol.loop_end import LoopEnd
from snapshot_engine.protocol.loop_log import LoopLog
from snapshot_engine.protocol.region_run import RegionRun
from snapshot_engine.protocol.source_drift import GroupTime, SourceDrift
from snapshot_engine.protocol.watermarks import WatermarkMerge


@dataclass(frozen=True)
class Parts:
    alignment: Callable[..., Alignment] = Alignment
    watermarks: Callable[..., WatermarkMerge] = WatermarkMerge
    coordinator: Callable[..., Coordinator] = Coordinator
    lineage: Callable[..., Lineage[Any]] = Lineage
    region_run: Callable[..., RegionRun] = RegionRun
    log: Callable[..., ChannelLog] = ChannelLog
    loop_log: Callable[..., LoopLog] = LoopLog
    loop_end: Callable[..., LoopEnd] = LoopEnd
    receiver: Callable[..., ChannelReceiver] = ChannelReceiver
    source_drift: Callable[[int], SourceDrift] = SourceDrift
    group_time: Callable[[int], GroupTime] = GroupTime
    # What the shell has to do right; each is the rule, and False or another value breaks it.
    barriers_keep_their_place: bool = True
    connections_are_fenced: bool = True
    commits_wait_for_the_manifest: bool = True
    unknown_outcomes_are_resolved: bool = True
    refusals_after_unknown_are_checked: bool = True
    drivers_swap_against_their_own_version: bool = True
    generations_are_new: bool = True
    savepoints_do_not_commit: bool = True
    catch_up_holds_checkpoints: bool = True
    slots_without_logs_are_not_held: bool = True
