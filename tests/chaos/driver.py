"""A driver as a process of its own, so that it can be killed, stopped and replaced: `python driver.py <settings>`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import verifying_job

from snapshot_engine.connectors.failing import Fuse
from snapshot_engine.connectors.parquet_sink import ParquetSink
from snapshot_engine.runtime.job_events import JobEvents
from snapshot_engine.testing import run_pipeline


class DiesBeforeCommit(ParquetSink):
    """The driver that commits through it is gone in the moment after the manifest was written."""

    fuse: Fuse

    def commit(self, committables):
        try:
            self.fuse.blow("before the commit")
        except Exception:
            os._exit(9)
        super().commit(committables)


class Progress(JobEvents):
    """One line per completed checkpoint, for the test to wait for."""

    def checkpoint_completed(self, manifest, outcome, path, uri, written) -> None:
        print("completed", outcome.checkpoint, flush=True)


def main() -> None:
    settings = json.loads(sys.argv[1])
    sink = None
    if settings.get("die_before_commit"):
        sink = DiesBeforeCommit(settings["out"])
        sink.fuse = Fuse("commit", settings["die_before_commit"], settings["folder"])
    result = run_pipeline(
        verifying_job.pipeline,
        storage=settings["storage"],
        parallelism=settings["parallelism"],
        interval=0.2,
        args={"out": settings["out"], "count": settings["count"], "rate": settings["rate"], "sink": sink},
        observers=(Progress(),),
    )
    print("ended", result.outcome.value, result.message, flush=True)


if __name__ == "__main__":
    main()
