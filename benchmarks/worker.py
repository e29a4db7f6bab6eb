"""The part of a run that happens in the engine's own process: only the standard library.

A worker says that it is ready, then runs the jobs it is told, one after the other, until it is told to exit.
The harness measures each job alone, so that starting a virtual machine is not counted as processing, and lets
a first job warm it up and be checked.

    worker  → harness   @bench {"event": "ready", ...}
    harness → worker    run <job file>
    worker  → harness   @bench {"event": "done", "seconds": ..., ...}
    harness → worker    exit
"""

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PREFIX = "@bench "


@dataclass
class Job:
    """One query over some files, in the layout that the engine asked for."""

    query: str
    files: dict[str, list[str]]
    closing: dict[str, str]
    rows: int
    key_type: str
    parallelism: int
    checkpoint_interval_ms: int
    sink: str
    directory: str
    servers: str = ""
    topics: dict[str, str] = field(default_factory=dict)
    """Where the same rows are read from instead, if there are any: a topic of each table, as JSON."""
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def output(self) -> str:
        return str(Path(self.directory) / "output")

    @property
    def checkpoints(self) -> str:
        return str(Path(self.directory) / "checkpoints")

    @property
    def writes_files(self) -> bool:
        return self.sink == "files"


def link_files(files: list[str], directory: Path) -> str:
    """A directory that holds just these files, older first. They are hard links, nothing is copied."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, file in enumerate(files):
        link = directory / f"part-{number:05d}.parquet"
        link.unlink(missing_ok=True)
        os.link(file, link)
    return str(directory)


def say(event: str, **facts: Any) -> None:
    sys.stdout.write(PREFIX + json.dumps({"event": event, "time": time.time(), **facts}) + "\n")
    sys.stdout.flush()


def read_job(file: str) -> Job:
    return Job(**json.loads(Path(file).read_text()))


def serve(run: Callable[[Job], dict[str, Any]], versions: dict[str, str]) -> None:
    """Run jobs as told. `run` returns facts for the report once every result of its job is out."""
    _adopt_orphans()
    say("ready", versions=versions)
    for line in sys.stdin:
        command, _, argument = line.strip().partition(" ")
        if command != "run":
            break
        job = read_job(argument)
        started = time.perf_counter()
        facts = run(job)
        say("done", seconds=time.perf_counter() - started, facts=facts)
    sys.stdout.flush()
    # Engines leave threads and gateways behind that may hang on a regular exit; nothing is left to be saved.
    os._exit(0)


def _adopt_orphans() -> None:
    """Processes whose parent ends stay below this one, so that their CPU time and memory are counted."""
    set_child_subreaper = 36
    ctypes.CDLL(None).prctl(set_child_subreaper, 1, 0, 0, 0)
