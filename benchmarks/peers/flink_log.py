"""What Flink's own log says of restarts. Standard library only.

Its REST interface is a picture of the moment: of a restart that takes less than the time between two looks it shows
nothing.
"""

import re
from collections.abc import Iterable
from datetime import datetime

_CHANGE = re.compile(
    r"^(?P<time>\S+ \S+) INFO +org\.apache\.flink\.runtime\.taskmanager\.Task +.*"
    r"\((?P<subtask>\d+)/(?P<parallelism>\d+)\)#(?P<attempt>\d+) .*"
    r"switched from (?P<old>[A-Z]+) to (?P<new>[A-Z]+)"
)
_JOB_FAILED = "switched from state FAILING to FAILED"
_LEVEL = re.compile(r"^(\S+ \S+) (WARN|ERROR) ")


def restart_times(lines: Iterable[str]) -> list[float]:
    """Seconds from a task's failure until the last task of the next attempt ran, of each restart of the log's one job.

    A restart counts only if as many tasks came to run as in the first attempt.
    """
    failed: dict[int, float] = {}
    running: dict[int, list[float]] = {}
    for line in lines:
        change = _CHANGE.match(_LEVEL.sub(r"\1 INFO ", line))
        if change is None:
            continue
        attempt, moment = int(change["attempt"]), _seconds(change["time"])
        if change["new"] == "RUNNING":
            running.setdefault(attempt, []).append(moment)
        elif change["new"] == "FAILED":
            failed.setdefault(attempt, moment)
    tasks = len(running.get(0, ()))
    return [
        max(running[attempt + 1]) - moment
        for attempt, moment in sorted(failed.items())
        if len(running.get(attempt + 1, ())) == tasks
    ]


def job_has_failed(lines: Iterable[str]) -> bool:
    """It was not allowed another restart."""
    return any(_JOB_FAILED in line for line in lines)


def _seconds(time: str) -> float:
    return datetime.strptime(time, "%Y-%m-%d %H:%M:%S,%f").timestamp()
