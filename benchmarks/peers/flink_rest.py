"""What a running Flink job says about itself over its REST interface: rows taken in, checkpoints."""

import contextlib
import json
import socket
import threading
import time
import urllib.error
import urllib.request
from typing import Any

_INTERVAL_SECONDS = 0.5


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def rest_configuration(port: int) -> dict[str, str]:
    return {"rest.port": str(port), "rest.bind-port": str(port), "metrics.fetcher.update-interval": "500"}


class FlinkJob:
    """One job, asked over REST. An answer that does not come (the job is starting or ending) is None."""

    def __init__(self, port: int, job_id: str) -> None:
        self._address = f"http://127.0.0.1:{port}/jobs/{job_id}"

    def cancel(self) -> None:
        request = urllib.request.Request(self._address + "?mode=cancel", method="PATCH")
        with contextlib.suppress(OSError):
            urllib.request.urlopen(request, timeout=10).close()

    def checkpoints(self) -> dict[str, Any] | None:
        return self._ask("/checkpoints")

    def completed_checkpoints(self) -> int:
        answer = self.checkpoints()
        return int(answer["counts"]["completed"]) if answer else 0

    def watermark(self, place: int) -> int | None:
        """The least event time (epoch ms) of the subtasks of the vertex at that place, once all of them have one."""
        job = self._ask("")
        if job is None or len(job["vertices"]) <= place:
            return None
        told = self._ask(f"/vertices/{job['vertices'][place]['id']}/watermarks")
        times = [int(each["value"]) for each in told or []]
        return min(times) if times and min(times) >= 0 else None

    def rows_sent_by_sources(self) -> int:
        """Records that the first vertex has passed on; counters may lag by the update interval."""
        job = self._ask("")
        return int(job["vertices"][0]["metrics"]["write-records"]) if job else 0

    def stop(self, savepoint_directory: str) -> None:
        """Stop with a savepoint, so that sinks commit what they hold."""
        body = json.dumps({"targetDirectory": savepoint_directory, "drain": False}).encode()
        request = urllib.request.Request(self._address + "/stop", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()

    def _ask(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(self._address + path, timeout=5) as answer:
                return json.load(answer)
        except (OSError, urllib.error.URLError, ValueError):
            return None


class CheckpointWatch(threading.Thread):
    """Keeps the latest statistics, because they are gone once the job has ended."""

    def __init__(self, job: FlinkJob) -> None:
        super().__init__(daemon=True)
        self._job, self._ended = job, threading.Event()
        self._latest: dict[str, Any] | None = None

    def run(self) -> None:
        while not self._ended.wait(_INTERVAL_SECONDS):
            self._latest = self._job.checkpoints() or self._latest

    def stop(self) -> dict[str, Any]:
        self._ended.set()
        return summarise(self._latest) if self._latest else {}


def summarise(statistics: dict[str, Any]) -> dict[str, Any]:
    """Durations and sizes of completed checkpoints, in milliseconds and bytes."""
    summary = statistics["summary"]
    return {
        "completed": statistics["counts"]["completed"],
        "failed": statistics["counts"]["failed"],
        "duration_ms": _range(summary["end_to_end_duration"]),
        "state_bytes": _range(summary["state_size"]),
        "written_bytes": _range(summary["checkpointed_size"]),
    }


def _range(values: dict[str, Any]) -> dict[str, float]:
    return {name: values[name] for name in ("min", "avg", "p50", "p99", "max") if name in values}


def wait_for_rows(job: FlinkJob, rows: int, timeout: float = 3600) -> None:
    deadline = time.monotonic() + timeout
    while job.rows_sent_by_sources() < rows:
        if time.monotonic() > deadline:
            raise TimeoutError(f"Flink has passed on {job.rows_sent_by_sources():,} of {rows:,} rows")
        time.sleep(_INTERVAL_SECONDS / 2)
