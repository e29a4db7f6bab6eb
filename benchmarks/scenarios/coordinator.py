"""What one checkpoint costs the driver, by the number of subtasks: a simulation beyond one machine.

The driver's real code runs: the planned graph, the coordinator with its shell, messages unpacked from bytes as they
come from slots, the critical path, the manifest in a real store. Only slots and sockets are missing. Run it in the
project's own environment:

    .venv/bin/python -m benchmarks.scenarios.coordinator --subtasks 100,1000,10000
"""

import argparse
import asyncio
import json
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.scenarios.figures import keep_figures
from snapshot_engine.api import Count, Environment, Sum, Tumbling
from snapshot_engine.channels.queues import DEFAULT_LIMIT_BYTES
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink
from snapshot_engine.graph.execution import ExecutionGraph
from snapshot_engine.graph.job_plan import plan_pipeline
from snapshot_engine.graph.planning import PlanOptions
from snapshot_engine.protocol.checkpoints import CheckpointConfig
from snapshot_engine.protocol.elements import Attempt, SubtaskId
from snapshot_engine.runtime import messages as m
from snapshot_engine.runtime.checkpointing import Checkpointing
from snapshot_engine.runtime.commits import Committer
from snapshot_engine.runtime.embedded import open_job_store
from snapshot_engine.runtime.job_settings import JobSettings
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.pieces import PieceOptions, StorageConfig

_ATTEMPT = Attempt(1, 1)
_TIMINGS = {"start_delay": 0.01, "alignment": 0.005, "sync": 0.001, "async": 0.02}


@dataclass(frozen=True)
class DriverCost:
    """CPU seconds of the driver for one checkpoint, and what grows beside it.

    A slot has a connection for each channel from or to another slot, and one to the driver. Each channel may hold a
    queue's limit at either end.
    """

    shape: str
    subtasks: int
    cpu_seconds: float
    plan_cpu_seconds: float
    channels: int
    connections_per_slot: int
    buffer_bytes_per_slot: int
    peak_memory: int


def keyed_pipeline(env: Environment) -> None:
    """One hash edge: all subtasks are one region, and every source talks to every window."""
    env.key_groups = max(env.key_groups, env.parallelism)
    stream = env.from_source(bids(), uid="bids").with_watermark("ts")
    windows = stream.key_by("auction").window(Tumbling("10s")).aggregate(bids=Count(), total=Sum("price"))
    windows.uid("windows").sink_to(DiscardSink(), uid="out")


def forward_pipeline(env: Environment) -> None:
    """Two vertices joined subtask to subtask: as many regions as there are slots."""
    stream = env.from_source(bids(), uid="bids")
    stream.exchange("committed").where("price > 10").uid("filter").sink_to(DiscardSink(), uid="out")


PIPELINES: dict[str, Callable[[Environment], None]] = {"hash": keyed_pipeline, "forward": forward_pipeline}


class Listener:
    """The JobMaster as far as a checkpoint needs it. Messages are packed as for the wire, once per slot."""

    def __init__(self) -> None:
        self.completed = asyncio.Event()
        self.checkpoint = 0
        self.sent_bytes = 0

    def send_to_subtasks(self, subtasks: Sequence[SubtaskId], make: Callable[[list[str]], m.Message]) -> None:
        for subtask in subtasks:
            self.sent_bytes += len(m.pack(make([str(subtask)])))

    def send_to_all(self, message: m.Message) -> None:
        self.sent_bytes += len(m.pack(message))

    def checkpoint_triggered(self, checkpoint: int) -> None:
        self.checkpoint = checkpoint

    def checkpoint_committed(self, checkpoint: int, published: Any) -> None:
        self.send_to_all(m.Completed(checkpoint))

    def checkpoint_completed(self, *_: Any) -> None:
        self.completed.set()

    def checkpoint_aborted(self, action: Any) -> None:
        raise AssertionError(f"the simulated checkpoint was aborted: {action.reason}")

    def checkpoints_keep_failing(self, reason: str) -> None:
        raise AssertionError(reason)

    def job_finished(self) -> None:
        pass

    def lost_ownership(self, error: Exception) -> None:
        raise error


async def simulate(shape: str, subtasks: int, repetitions: int, storage: str) -> DriverCost:
    started = time.process_time()
    parallelism = max(1, subtasks // 2)
    options = PlanOptions(job="simulated", parallelism=parallelism)
    graph = ExecutionGraph(plan_pipeline(PIPELINES[shape], None, parallelism, options))
    settings = _settings(storage)
    store = open_job_store(settings)
    store.acquire(settings.uid, settings.take_over)
    listener = Listener()
    committer = Committer(graph.graph, settings.name)
    checkpointing = Checkpointing(settings, graph, store, committer, listener, time.time)
    planned = time.process_time() - started
    checkpointing.start()
    checkpointing.resume(dict.fromkeys(graph.subtasks, _ATTEMPT))
    costs = [await _one_checkpoint(checkpointing, listener, list(graph.subtasks)) for _ in range(repetitions)]
    await checkpointing.close()
    return DriverCost(
        shape,
        len(graph.subtasks),
        min(costs),
        planned,
        sum(len(channels) for channels in graph.inputs.values()),
        channels_of_slot(graph) + 1,
        channels_of_slot(graph) * DEFAULT_LIMIT_BYTES,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def channels_of_slot(graph: ExecutionGraph) -> int:
    """Those that slot 0 of the first region has with other slots, in and out."""
    hosted = graph.regions[0].hosted_by(0)
    both = [channel for subtask in hosted for ends in (graph.inputs, graph.outputs) for channel in ends[subtask]]
    return sum(channel.producer != channel.consumer for channel in both)


async def _one_checkpoint(checkpointing: Checkpointing, listener: Listener, subtasks: list[SubtaskId]) -> float:
    """From the trigger to the commit; slots' answers are made beforehand, since making them is slots' work."""
    number = checkpointing.coordinator.next_id
    answers = [m.pack(_acknowledgement(number, subtask))[m.LENGTH.size :] for subtask in subtasks]
    listener.completed.clear()
    before = time.process_time()
    checkpointing.request_checkpoint()
    for subtask, answer in zip(subtasks, answers, strict=True):
        message = m.unpack(answer)
        assert isinstance(message, m.Acknowledged)
        checkpointing.acknowledged(_ATTEMPT, subtask, message)
    await listener.completed.wait()
    return time.process_time() - before


def _acknowledgement(checkpoint: int, subtask: SubtaskId) -> m.Acknowledged:
    return m.Acknowledged(checkpoint, str(subtask), {"operators": [], "channels": {}}, _TIMINGS)


def _settings(storage: str) -> JobSettings:
    return JobSettings(
        name="simulated",
        namespace="benchmarks",
        uid="simulated",
        storage=StorageConfig(storage, Layout("benchmarks", "simulated"), {}, PieceOptions()),
        checkpoint=CheckpointConfig(interval=None),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--subtasks", default="100,1000,10000")
    parser.add_argument("--shapes", default="hash,forward")
    parser.add_argument("--repetitions", type=int, default=3)
    chosen = parser.parse_args()
    costs = []
    for shape in chosen.shapes.split(","):
        for subtasks in (int(number) for number in chosen.subtasks.split(",")):
            with tempfile.TemporaryDirectory() as storage:
                cost = asyncio.run(simulate(shape, subtasks, chosen.repetitions, storage))
            costs.append(asdict(cost))
            print(json.dumps(costs[-1]), flush=True)
    keep_figures("coordinator", costs)


if __name__ == "__main__":
    main()
