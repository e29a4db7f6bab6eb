"""What a slot and the JobMaster say to each other, and how it looks on the connection.

Each message is a length and a packed [name, fields]. The connection belongs to one slot of one attempt: after `Hello`
nothing needs to say again who is speaking.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field, fields
from typing import Any

import ormsgpack

LENGTH = struct.Struct("<I")
MAX_MESSAGE = 1 << 30


@dataclass(frozen=True)
class Hello:
    """A slot is there. `proof` shows that it knows the job's secret."""

    region: int
    generation: int
    attempt: int
    slot: int
    executor: str
    pod: str | None
    host: str
    pid: int
    address: list[Any]
    """A SlotAddress, field by field."""
    proof: bytes


@dataclass(frozen=True)
class Deploy:
    """Build your subtasks from this."""

    restore: dict[str, Any]
    """By subtask: {finished, rescaled, rescaled_operators: [uid, …], operators: {uid: [state, …]}, channels}; absent
    for a fresh start. `rescaled` is said of the vertex and its channels, not of what its operators are given."""
    producers: dict[str, list[Any]]
    """By channel: the address, the region and the attempt of its producer's slot."""
    settled: int = 0
    """The newest checkpoint that was triggered so far: barriers up to it are over."""
    catching_up: bool = False
    """Consumers went on without this region: say when they have all been sent what they had seen."""
    finished_consumers: list[str] = field(default_factory=list)
    """Channels whose consumers have finished: nothing need be kept for them."""


@dataclass(frozen=True)
class Connect:
    """Producers in other regions are there now, perhaps again: read from them, as in `Deploy.producers`."""

    producers: dict[str, list[Any]]


@dataclass(frozen=True)
class ConsumersFinished:
    """The consumers of these channels have finished, perhaps without having said how far they had come: whoever is
    catching up with them need not wait for their word.
    """

    channels: list[str]


@dataclass(frozen=True)
class Ready:
    """All subtasks of the slot are restored and running."""

    restore_seconds: float


@dataclass(frozen=True)
class FirstOutput:
    """The first rows have come to an end of the region in this slot."""


@dataclass(frozen=True)
class Trigger:
    """Take a snapshot of your sources and emit the barrier."""

    checkpoint: int
    triggered_at: float
    subtasks: list[str]
    stop: bool
    """Emit nothing behind the barrier, unless the checkpoint is aborted: the job is to end with it."""


@dataclass(frozen=True)
class Acknowledged:
    """A subtask's snapshot is written."""

    checkpoint: int
    subtask: str
    state: dict[str, Any]
    """{operators: [OperatorState, …], channels: …}"""
    timings: dict[str, float]


@dataclass(frozen=True)
class Declined:
    checkpoint: int
    subtask: str
    reason: str


@dataclass(frozen=True)
class SubtaskFinished:
    """All inputs have ended and this is the final state."""

    subtask: str
    state: dict[str, Any]
    snapshotted: int
    """The newest checkpoint for which the subtask has emitted a barrier."""


@dataclass(frozen=True)
class InputsEnded:
    """All inputs that bring barriers have ended, but the subtask goes on: trigger it like a source."""

    subtask: str


@dataclass(frozen=True)
class SteerLoop:
    """The driver's word to the loops of the region: count, end a round, begin one, let event time run out, end."""

    what: str
    number: int
    """Of the wave or the round."""


@dataclass(frozen=True)
class LoopCounted:
    """The slot's answer to a wave: the counts of each of its subtasks."""

    wave: int
    counts: dict[str, list[Any]]


@dataclass(frozen=True)
class Completed:
    checkpoint: int
    segments: dict[str, list[Any]] = field(default_factory=dict)
    """By channel: what has become visible to the readers of stored exchanges."""


@dataclass(frozen=True)
class Aborted:
    checkpoint: int


@dataclass(frozen=True)
class Heartbeat:
    """The slot's loop is alive; with what it has to tell about its subtasks."""

    subtasks: dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Failed:
    """Something raised; the slot ends."""

    subtask: str | None
    operator: str | None
    error: str
    traceback: str
    lost_input: str | None = None
    """The channel that could not be read: its producer may have to make it again."""
    unreadable_state: bool = False
    """What there is to restore does not fit the pipeline, or is damaged: trying again cannot help."""


@dataclass(frozen=True)
class ChannelLost:
    """A producer hung up before the end of its channel, or could not be reached."""

    channel: str
    producer: list[int]
    """The producer's attempt."""
    reason: str = ""


@dataclass(frozen=True)
class Pin:
    """A failover has chosen `checkpoint`: keep all from there on, and say which logs have it."""

    checkpoint: int
    request: int


@dataclass(frozen=True)
class Pinned:
    checkpoint: int
    request: int
    whole: list[str]
    """The channels whose consumers could read again from the checkpoint."""


@dataclass(frozen=True)
class Unpin:
    checkpoint: int


@dataclass(frozen=True)
class CaughtUp:
    """All that the consumers had seen of this slot's logs has been produced again."""


@dataclass(frozen=True)
class Pressure:
    """A log is filling up: a checkpoint would make room."""


@dataclass(frozen=True)
class LogFull:
    """This slot keeps as much as it may, or no longer does: the sources have to pause, or may go on."""

    full: bool


@dataclass(frozen=True)
class PauseSources:
    paused: bool
    feeds_who_catches_up: bool = False
    """This region or one further down catches up: a full log pauses nobody once all of it is read."""


@dataclass(frozen=True)
class SourceTime:
    """How far a source subtask has come in event time; None: it holds nobody back."""

    subtask: str
    time: int | None


@dataclass(frozen=True)
class LeastTime:
    """How far the slowest has come of the sources that keep together; None: none of them counts yet."""

    group: int
    time: int | None


@dataclass(frozen=True)
class Ping:
    """Nothing to do: that the slot's machine acknowledges it shows that the machine can be reached."""


@dataclass(frozen=True)
class Stop:
    """End now, without a snapshot."""

    reason: str


_KINDS = {
    kind.__name__: kind
    for kind in (
        Hello,
        Deploy,
        Ready,
        FirstOutput,
        Trigger,
        Acknowledged,
        Declined,
        SubtaskFinished,
        InputsEnded,
        SteerLoop,
        LoopCounted,
        Completed,
        Aborted,
        Heartbeat,
        Failed,
        ChannelLost,
        Connect,
        ConsumersFinished,
        Pin,
        Pinned,
        Unpin,
        CaughtUp,
        Pressure,
        LogFull,
        PauseSources,
        SourceTime,
        LeastTime,
        Ping,
        Stop,
    )
}

Message = (
    Hello
    | Deploy
    | Ready
    | FirstOutput
    | Trigger
    | Acknowledged
    | Declined
    | SubtaskFinished
    | InputsEnded
    | SteerLoop
    | LoopCounted
    | Completed
    | Aborted
    | Heartbeat
    | Failed
    | ChannelLost
    | Connect
    | ConsumersFinished
    | Pin
    | Pinned
    | Unpin
    | CaughtUp
    | Pressure
    | LogFull
    | PauseSources
    | SourceTime
    | LeastTime
    | Ping
    | Stop
)


class BadMessage(Exception):
    """The peer sent something that is no message."""


def pack(message: Message) -> bytes:
    body = ormsgpack.packb(
        [type(message).__name__, {each.name: getattr(message, each.name) for each in fields(message)}]
    )
    return LENGTH.pack(len(body)) + body


def unpack(body: bytes | memoryview) -> Message:
    try:
        name, values = ormsgpack.unpackb(body)
        return _KINDS[name](**values)
    except (ValueError, KeyError, TypeError) as error:
        raise BadMessage(f"not a control message: {error}") from error


def proof_of(secret: bytes, region: int, generation: int, attempt: int, slot: int) -> bytes:
    """Shows that whoever made it knows the secret, for this slot of this attempt only."""
    return hmac.digest(secret, f"slot:{region}:{generation}:{attempt}:{slot}".encode(), hashlib.sha256)
