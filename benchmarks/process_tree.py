"""CPU time and memory of a process and everything it started, from /proc.

CPU time of processes that have ended is kept by whoever waited for them (cutime, cstime), if anybody did: a measured
tree is watched. Orphans are passed to the worker, which declares itself a subreaper, so none escapes the sum.
"""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
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


class TreeWatch(threading.Thread):
    """Follows the CPU time and the memory of a tree while it works.

    What processes that have ended had used is known only to parents that waited for them, and some do not (Spark's
    daemon of Python workers): so each process's own time is looked at every few milliseconds; the last value counts.
    Who belongs to the tree and what it holds is looked at less often. Reading PSS is costly, so it is read only when
    RSS has reached a new height.
    """

    def __init__(self, root: int, interval: float = 0.2, growth: float = 1.02, look: float = 0.02) -> None:
        super().__init__(daemon=True)
        self._root, self._interval, self._growth, self._look = root, interval, growth, look
        self._finished = threading.Event()
        self._highest_resident = 0.0
        processes = all_processes()
        self._before = {pid: processes[pid].own_ticks for pid in tree(root, processes)}
        self._latest = dict(self._before)
        self._alive = set(self._before)
        self.peak_bytes = 0

    @property
    def cpu_seconds(self) -> float:
        """Since this watch was made; no less than the clock counts."""
        used = sum(ticks - self._before.get(pid, 0) for pid, ticks in self._latest.items())
        return max(used, 1) / _TICKS

    def run(self) -> None:
        looks = 0
        while not self._finished.wait(self._look):
            looks += 1
            if looks * self._look >= self._interval:
                looks = 0
                self.sample()
            else:
                self._look_at_times()

    def sample(self) -> None:
        processes = all_processes()
        self._alive = tree(self._root, processes)
        self._latest |= {pid: processes[pid].own_ticks for pid in self._alive}
        resident = resident_bytes(self._alive)
        if resident > self._highest_resident * self._growth:
            self._highest_resident = resident
            self.peak_bytes = max(self.peak_bytes, proportional_bytes(self._alive))

    def stop(self) -> None:
        self._finished.set()
        self.join(timeout=5)
        self.sample()

    def _look_at_times(self) -> None:
        for pid in self._alive:
            try:
                times = parse_stat((_PROC / str(pid) / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue
            self._latest[pid] = times.own_ticks
