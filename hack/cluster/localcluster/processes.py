"""Processes that outlive the command which starts them, found again by what is written about them in a file.

A process id alone may have been given to another since; together with its start time it names one process. Whoever was
killed before it could write that down leaves a process that only its environment tells.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from localcluster.commands import Argument
from localcluster.errors import ClusterError
from localcluster.whole_files import write_whole

RECORD = "STREAMINGJOB_CLUSTER_RECORD"
"""In the environment of every process that is started here, and of what it starts: where it is written down."""


@dataclass(frozen=True)
class Process:
    pid: int
    started: int
    """In clock ticks since the machine's boot, as the kernel counts them."""

    @classmethod
    def of(cls, pid: int) -> Process:
        return cls(pid, start_time(pid) or 0)

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started

    def signal(self, number: signal.Signals) -> None:
        if self.alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait_until_gone(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.alive and time.monotonic() < deadline:
            time.sleep(0.05)
        return not self.alive

    def end(self, patience: float) -> None:
        """Asks first; after `patience` seconds it does not ask any more."""
        self.signal(signal.SIGTERM)
        if not self.wait_until_gone(patience):
            self.kill()

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        if not self.wait_until_gone(10):
            raise ClusterError(f"process {self.pid} was killed 10 s ago and is still there", "See `ps -l -p` of it.")


def start_time(pid: int) -> int | None:
    """None for a process that is gone, or that is dead and only not yet reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def processes_with(variable: str, value: str) -> Iterator[Process]:
    """Those that were started with it in their environment, as far as this user may look."""
    wanted = f"{variable}={value}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                yield Process.of(int(folder.name))


@dataclass(frozen=True)
class ProcessFolder:
    """The processes of one run, each by its name: `<name>.pid.json`, and its output in `logs/<name>.log`."""

    folder: Path

    def start(self, name: str, command: Sequence[Argument], env: Mapping[str, str] | None = None) -> Process:
        log = self.log(name)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            child = subprocess.Popen(
                [str(part) for part in command],
                env={**(os.environ if env is None else env), RECORD: str(self.record(name))},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            return self.remember(name, child.pid)
        except BaseException:  # nobody would ever find it again
            child.kill()
            child.wait()
            raise

    def remember(self, name: str, pid: int) -> Process:
        process = Process.of(pid)
        write_whole(self.record(name), json.dumps(asdict(process)).encode())
        return process

    def find(self, name: str) -> Process | None:
        """The process of that name if it lives."""
        try:
            process = Process(**json.loads(self.record(name).read_text()))
        except FileNotFoundError:
            return None
        return process if process.alive else None

    def stop(self, name: str, patience: float = 5.0) -> None:
        if process := self.find(name):
            process.end(patience)
        for unrecorded in processes_with(RECORD, str(self.record(name))):
            unrecorded.end(patience)
        self.record(name).unlink(missing_ok=True)

    def record(self, name: str) -> Path:
        return self.folder / f"{name}.pid.json"

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def last_lines(self, name: str, count: int = 12) -> str:
        log = self.log(name)
        return "\n".join(log.read_text(errors="replace").splitlines()[-count:]) if log.exists() else "(no output)"
