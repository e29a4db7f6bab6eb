"""What Spark ships to a slot: everything it needs to know before the JobMaster has said a word."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.protocol.elements import Attempt, ChannelId, Mode, SubtaskId
from snapshot_engine.runtime.clocks import Clock, clock_ms
from snapshot_engine.storage.pieces import StorageConfig

DEFAULT_EXCHANGE_BUDGET = 256 << 20


@dataclass(frozen=True)
class SlotSettings:
    """The part of the job's configuration that slots act on."""

    mode: Mode
    storage: StorageConfig
    incremental: bool = False
    heartbeat_seconds: float = 0.5
    heartbeat_timeout: float = 5.0
    """After so long a silence the JobMaster takes the slot for lost."""
    exchange_budget: int = DEFAULT_EXCHANGE_BUDGET
    """What a memory or durable exchange may keep per producer subtask where the edge does not say."""
    local_folder: str | None = None
    """Where slots keep what need not outlive their machine; None: the usual place for temporary files."""
    clock: Clock = clock_ms


@dataclass(frozen=True)
class SlotTask:
    """One region's attempt. The same object goes to all of its slots; the partition says which slot one is."""

    job: str
    region: int
    attempt: Attempt
    graph: ExecutionGraph
    control_host: str
    control_port: int
    secret: bytes
    settings: SlotSettings
    lineage: str = ""
    """Tells the job from others of its name: see `WriterContext`."""

    def slots(self) -> list[int]:
        return self.graph.regions[self.region].slots()


def subtask_key(subtask: SubtaskId) -> str:
    """How a subtask is named in messages."""
    return f"{subtask.vertex}#{subtask.index}"


def parse_subtask(key: str) -> SubtaskId:
    vertex, _, index = key.rpartition("#")
    return SubtaskId(vertex, int(index))


def channel_key(channel: ChannelId) -> str:
    """How a channel is named in messages."""
    return f"{channel.edge}:{channel.producer}:{channel.consumer}"


def parse_channel(key: str) -> ChannelId:
    edge, producer, consumer = key.split(":")
    return ChannelId(int(edge), int(producer), int(consumer))
