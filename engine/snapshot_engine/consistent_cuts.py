"""Looks at every checkpoint of a job that is tested: is it a consistent cut through its memory and durable exchanges?

Their channels are numbered, so the manifest itself tells: what the producer had sent before its barrier is what the
consumer had read before its own. A cut that is not consistent loses or doubles rows only when it is restored.
"""

from __future__ import annotations

from typing import Any

from snapshot_engine.runtime.exchanges.exchange_restore import LOGGED
from snapshot_engine.runtime.exchanges.stored_segments import READ_SUFFIX, WRITTEN_SUFFIX
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.storage.manifest import Manifest

Channel = tuple[str, int, int]
"""Edge, producer, consumer."""


class InconsistentCut(AssertionError):
    """A checkpoint whose producers and consumers do not agree on what had passed between them."""


class ConsistentCuts(JobEvents):
    def __init__(self) -> None:
        self._broken: list[str] = []

    def checkpoint_completed(self, manifest: Manifest, *_: Any) -> None:
        self._broken += broken_channels(manifest)

    def verify(self) -> None:
        if self._broken:
            raise InconsistentCut("; ".join(self._broken[:5]))


def broken_channels(manifest: Manifest) -> list[str]:
    """A sentence for each channel whose two ends disagree."""
    sent: dict[Channel, int] = {}
    read: dict[Channel, int] = {}
    for _, index, subtask in manifest.subtasks():
        for state in subtask.operators:
            if state.kind != LOGGED:
                continue
            for other, number in state.meta["numbers"]:
                if state.uid.endswith(WRITTEN_SUFFIX):
                    sent[state.uid.removesuffix(WRITTEN_SUFFIX), index, other] = number
                else:
                    read[state.uid.removesuffix(READ_SUFFIX), other, index] = number
    return [
        f"checkpoint {manifest.checkpoint}: along {edge} subtask {producer} had sent {sent.get(channel, 0)} rows, "
        f"of which subtask {consumer} had read {read.get(channel, 0)}"
        for channel in sorted(sent.keys() | read.keys())
        if sent.get(channel, 0) != read.get(channel, 0)
        for edge, producer, consumer in [channel]
    ]
