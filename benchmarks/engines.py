"""Engines as the harness sees them: something that can be installed and can run queries over datasets."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.environments import Environment
from benchmarks.launch import Measurement, Worker
from benchmarks.nexmark.datasets import open_dataset
from benchmarks.nexmark.queries import QUERIES
from benchmarks.nexmark.topics import fill_topic
from benchmarks.paths import WORK
from benchmarks.settings import Run, Settings
from benchmarks.worker import Job

START_TIMEOUT_SECONDS = 180.0


@dataclass(frozen=True)
class Engine:
    """An engine in one configuration. `module` is run as a worker by the environment's Python.

    `checkpoints` says whether the engine can run with or without them ("optional"), always has them
    ("always": each micro-batch is one), or is not compared with them ("never"). `scale` is the share of a
    slice that the engine's checks take; a full one would take slow engines minutes. `layout`: which files it reads.
    `topic_queries`: what it can also read from a Kafka topic. `only_state`: it differs from another configuration only
    in how it keeps state, so that queries without any are measured there.
    """

    name: str
    module: str
    environment: Environment
    queries: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    checkpoints: str = "optional"
    scale: float = 1.0
    layout: str = "slices"
    parallelisms: tuple[int, ...] = (1, 2, 4)
    variables: dict[str, str] = field(default_factory=dict, hash=False)
    topic_queries: tuple[str, ...] = ()
    only_state: bool = False

    def install(self) -> None:
        self.environment.install()

    @contextmanager
    def open(self) -> Iterator["Session"]:
        """A running worker, ready for queries."""
        command = [str(self.environment.python), "-m", self.module]
        with Worker(command, WORK / self.name / "worker", self.variables) as worker:
            yield Session(self, worker, worker.wait_until_ready(START_TIMEOUT_SECONDS))


@dataclass
class Session:
    """A worker. `warm_for`: the cell of which it has done so much that it gets no quicker."""

    engine: Engine
    worker: Worker
    versions: dict[str, str]
    warm_for: str = ""

    def run(self, settings: Settings) -> Run:
        """Run once. What the run wrote stays in `directory_of` until the same query is run again."""
        job = build_job(self.engine, settings)
        measured = self.worker.measure(job, settings.timeout_seconds)
        return _as_run(self.engine, settings, job, measured, self.versions)


def build_job(engine: Engine, settings: Settings) -> Job:
    dataset = open_dataset(settings.stream, settings.slices)
    tables = QUERIES[settings.query].tables
    files = dataset.files(engine.layout, settings.parallelism)
    topics = {table: fill_topic(dataset, table, settings.parallelism) for table in tables if settings.input == "topic"}
    return Job(
        query=settings.query,
        files={table: _names(files(table)) for table in tables},
        closing={table: str(dataset.closing_file(table)) for table in tables},
        rows=dataset.rows(tables),
        key_type=settings.stream.key_type,
        parallelism=settings.parallelism,
        checkpoint_interval_ms=settings.checkpoint_interval_ms,
        sink=settings.sink,
        directory=str(directory_of(engine, settings)),
        servers=next((servers for servers, _ in topics.values()), ""),
        topics={table: topic for table, (_, topic) in topics.items()},
        options={**engine.options, **settings.options},
    )


def directory_of(engine: Engine, settings: Settings) -> Path:
    return WORK / engine.name / f"{settings.query}-{settings.sink}"


def result_files(directory: Path) -> list[Path]:
    """Result files of a run, without what a sink has hidden by a leading dot or underscore."""
    output = directory / "output"
    return sorted(
        file
        for file in output.rglob("*")
        if file.is_file()
        and file.stat().st_size
        and not any(part.startswith((".", "_")) for part in file.relative_to(output).parts)
    )


def discard_work(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)


def _names(files: list[Path]) -> list[str]:
    return [str(file) for file in files]


def _as_run(engine: Engine, settings: Settings, job: Job, measured: Measurement, versions: dict[str, str]) -> Run:
    return Run(
        engine=engine.name,
        query=settings.query,
        keys=settings.stream.keys,
        key_type=settings.stream.key_type,
        rows=job.rows,
        parallelism=settings.parallelism,
        checkpoint_interval_ms=settings.checkpoint_interval_ms,
        seconds=measured.facts.pop("seconds", measured.seconds),
        cpu_seconds=measured.cpu_seconds,
        peak_memory=measured.peak_memory,
        sink=settings.sink,
        versions=versions,
        facts=measured.facts,
    )
