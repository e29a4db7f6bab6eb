"""Starts an engine's worker, gives it jobs, and measures its whole process tree while they run."""

import contextlib
import json
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.paths import REPOSITORY
from benchmarks.process_tree import TreeWatch, all_processes, tree
from benchmarks.worker import PREFIX, Job


class WorkerFailedError(RuntimeError):
    """The engine did not finish its work; the message says where its log is and how it ends."""


@dataclass(frozen=True)
class Measurement:
    seconds: float
    cpu_seconds: float
    peak_memory: int
    facts: dict[str, Any]


class Worker:
    """A worker process with its log. Leaving the context ends it and everything that it started."""

    def __init__(self, command: list[str], directory: Path, environment: dict[str, str]) -> None:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        self.log = directory / "worker.log"
        self._events: queue.Queue[dict[str, Any]] = queue.Queue()
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY), **environment},
                start_new_session=True,
            )
        threading.Thread(target=self._read_events, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> "Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self._tell("exit")
        below = tree(self.pid, all_processes())
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=3)
        _end(below | tree(self.pid, all_processes()))
        self._process.wait()

    def wait_until_ready(self, timeout: float) -> dict[str, str]:
        """The versions that the worker reports."""
        return dict(self.wait_for("ready", timeout)["versions"])

    def start(self, job: Job) -> None:
        directory = Path(job.directory)
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        job_file = directory / "job.json"
        job_file.write_text(json.dumps(asdict(job)))
        self._tell(f"run {job_file}")

    def measure(self, job: Job, timeout: float) -> Measurement:
        watch = TreeWatch(self.pid)
        watch.start()
        self.start(job)
        done = self.wait_for("done", timeout)
        watch.stop()
        return Measurement(done["seconds"], watch.cpu_seconds, watch.peak_bytes, done["facts"])

    def wait_for(self, event: str, timeout: float) -> dict[str, Any]:
        """The facts of the next event of that name; other events before it are passed over."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                facts = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise WorkerFailedError(f"no {event!r} within {timeout:.0f} s; {self._last_words()}") from None
            if facts["event"] == event:
                return facts
            if facts["event"] == "ended":
                raise WorkerFailedError(f"ended before {event!r}; {self._last_words()}")

    def _tell(self, words: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(words + "\n")
            self._process.stdin.flush()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        with self.log.open("a") as log:
            for line in self._process.stdout:
                if line.startswith(PREFIX):
                    self._events.put(json.loads(line[len(PREFIX) :]))
                else:
                    log.write(line)
        self._events.put({"event": "ended"})

    def _last_words(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return f"its log is {self.log} and ends:\n" + "\n".join(lines[-25:])


def _end(pids: set[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
