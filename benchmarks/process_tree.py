"""CPU time and memory of a process and everything it started, from /proc.

CPU time of processes that have ended is kept by whoever waited for them (cutime, cstime). Orphans are passed
to the worker, which declares itself a subreaper, so none escapes the sum.
"""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
TICK_SECONDS = 1 / _TICKS
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessTimes:
    parent: int
    own_ticks: int
    children_ticks: int


def parse_stat(text: str) -> ProcessTimes:
    """The fields of /proc/<pid>/stat; the command's name may itself hold blanks and brackets."""
    fields = text.rpartition(")")[2].split()
    user, system, children_user, children_system = (int(value) for value in fields[11:15])
    return ProcessTimes(int(fields[1]), user + system, children_user + children_system)


def all_processes() -> dict[int, ProcessTimes]:
    found = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = parse_stat((entry / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


def tree(root: int, processes: dict[int, ProcessTimes]) -> set[int]:
    """Root and everything below it."""
    found: set[int] = set()
    waiting = [root] if root in processes else []
    children: dict[int, list[int]] = {}
    for pid, times in processes.items():
        children.setdefault(times.parent, []).append(pid)
    while waiting:
        pid = waiting.pop()
        found.add(pid)
        waiting.extend(children.get(pid, []))
    return found


def cpu_seconds(root: int) -> float:
    """CPU time of root and of all that it has started so far, ended or not."""
    processes = all_processes()
    return sum(processes[pid].own_ticks + processes[pid].children_ticks for pid in tree(root, processes)) / _TICKS


def resident_bytes(pids: set[int]) -> int:
    total = 0
    for pid in pids:
        try:
            total += int((_PROC / str(pid) / "statm").read_text().split()[1]) * _PAGE
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total


def proportional_bytes(pids: set[int]) -> int:
    """Memory with shared pages counted once (PSS)."""
    total = 0
    for pid in pids:
        try:
            lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


class MemoryWatch(threading.Thread):
    """Follows the memory of a tree. Reading PSS is costly, so it is read only when RSS has reached a new
    height."""

    def __init__(self, root: int, interval: float = 0.2, growth: float = 1.02) -> None:
        super().__init__(daemon=True)
        self._root, self._interval, self._growth = root, interval, growth
        self._finished = threading.Event()
        self._highest_resident = 0.0
        self.peak_bytes = 0

    def run(self) -> None:
        while not self._finished.wait(self._interval):
            self.sample()

    def sample(self) -> None:
        pids = tree(self._root, all_processes())
        resident = resident_bytes(pids)
        if resident > self._highest_resident * self._growth:
            self._highest_resident = resident
            self.peak_bytes = max(self.peak_bytes, proportional_bytes(pids))

    def stop(self) -> int:
        self.sample()
        self._finished.set()
        self.join(timeout=5)
        return self.peak_bytes
