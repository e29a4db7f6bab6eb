"""Commits what completed checkpoints have prepared, through the sinks of the job graph."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from snapshot_engine.connectors.protocols import Sink, SweptJob
from snapshot_engine.graph.job_graph import JobGraph
from snapshot_engine.runtime.failure_report import summary
from snapshot_engine.storage.manifest import Manifest

log = logging.getLogger(__name__)

MOST_TRIES = 8
FIRST_PAUSE_SECONDS = 0.1


class CommitFailed(Exception):
    """A sink would not commit, however often it was asked. Nothing is lost: the manifest names what is prepared."""


def committables_of(manifest: Manifest) -> dict[str, list[Mapping[str, Any]]]:
    """All that a manifest names as prepared, by the uid of the sink's operator."""
    found: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for _, _, subtask in manifest.subtasks():
        for operator in subtask.operators:
            found[operator.uid].extend(operator.committables)
    return {uid: committables for uid, committables in found.items() if committables}


class Committer:
    """Idempotent from end to end: whatever a manifest names may be committed again, by anyone."""

    def __init__(
        self,
        graph: JobGraph,
        job: SweptJob,
        on_commit: Callable[[str, int], None] = lambda _uid, _count: None,
        on_failure: Callable[[str, str], None] = lambda _uid, _message: None,
    ) -> None:
        self._job = job
        self._on_commit = on_commit
        self._on_failure = on_failure
        self._sinks: dict[str, tuple[str, Sink]] = {
            node.uid: (node.name, node.sink)
            for vertex in graph.vertices.values()
            for node in vertex.operators
            if node.sink is not None
        }

    async def commit(self, manifest: Manifest) -> None:
        """Returns when all is visible. Tries again when a sink raises; raises CommitFailed at last."""
        for uid, committables in committables_of(manifest).items():
            if uid in self._sinks:
                await self._commit(uid, committables)
                self._on_commit(uid, len(committables))

    async def sweep(self, generation: int, kept: Iterable[Manifest]) -> None:
        """Remove what older drivers left open. What any kept checkpoint or savepoint names is left alone."""
        keep: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for manifest in kept:
            for uid, committables in committables_of(manifest).items():
                keep[uid].extend(committables)
        for uid, (name, sink) in self._sinks.items():
            try:
                await asyncio.to_thread(sink.sweep, self._job, uid, generation, keep[uid])
            except Exception as error:
                log.warning("sink %r could not remove what earlier drivers left behind: %s", name, error)

    async def _commit(self, uid: str, committables: list[Mapping[str, Any]]) -> None:
        name, sink = self._sinks[uid]
        pause = FIRST_PAUSE_SECONDS
        for attempt in range(1, MOST_TRIES + 1):
            try:
                await asyncio.to_thread(sink.commit, committables)
                return
            except Exception as error:
                last = summary(error)
                message = f"sink {name!r} did not commit (try {attempt} of {MOST_TRIES}): {last}"
                log.warning("%s", message)
                self._on_failure(uid, message)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)
        raise CommitFailed(f"sink {name!r} failed to commit {MOST_TRIES} times, the last time with: {last}")
