"""Spark as the engine's cluster: it schedules, places, isolates and ends slots. The only file that imports pyspark.

Each attempt of a region is one Spark job: a barrier-mode stage with a task per slot, in a job group of its own. Barrier
mode is gang scheduling: all slots of a region run, or none. A failed slot ends that Spark job and no other; restarting
is the JobMaster's.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import BarrierTaskContext, InheritableThread, SparkConf, SparkContext, cloudpickle
from pyspark.sql import SparkSession

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.launcher import ExecutorInfo, OnEnd
from snapshot_engine.runtime.slot_task import SlotTask

log = logging.getLogger(__name__)

OWNED_SETTINGS: Mapping[str, str] = {
    # Restarting is ours: a failed slot must end its Spark job at once, and must not end the application.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.executor.maxNumFailures": "2147483647",
    "spark.excludeOnFailure.enabled": "false",
    # Neither goes with barrier mode.
    "spark.dynamicAllocation.enabled": "false",
    "spark.speculation": "false",
    # Waiting is most of a recovery: look for free slots often, and do not wait for better placed ones.
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures": "600",
    "spark.locality.wait": "0",
    "spark.python.task.killTimeout": "50ms",
    # Forked from a process that has imported everything: a slot is there in milliseconds.
    "spark.python.worker.reuse": "true",
    "spark.python.use.daemon": "true",
    "spark.python.daemon.module": "snapshot_engine.runtime.spark_daemon",
}


MOST_EMBEDDED_SLOTS = 64
"""A core of an embedded Spark is only a permission to run a task: there may be more of them than the machine has."""


def embedded_session() -> SparkSession:
    """For pipelines that begin with a DataFrame: the session of the Spark that will run the slots too."""
    return SparkSession(embedded_context("streamingjob", MOST_EMBEDDED_SLOTS // 2, {}))


def embedded_context(job: str, slots: int, conf: Mapping[str, str]) -> SparkContext:
    """A Spark inside this process, with room for `slots` slots and for those that have not yet ended."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.master": f"local[{max(MOST_EMBEDDED_SLOTS, 2 * slots)},1]",
        "spark.app.name": job,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **conf,
        **OWNED_SETTINGS,
    }
    context = SparkContext.getOrCreate(SparkConf().setAll(list(settings.items())))
    context.setLogLevel("FATAL")
    return context


def ship_by_value(module: ModuleType) -> None:
    """The slots cannot import `module` (it was loaded from a file or from the manifest): send its code along."""
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class SparkLauncher:
    """Starts attempts as Spark jobs, each waited for by a thread of its own."""

    def __init__(self, context: SparkContext, control_host: str = "127.0.0.1") -> None:
        self._context = context
        self.control_host = control_host

    @property
    def application_id(self) -> str | None:
        return str(self._context.applicationId)

    def launch(self, task: SlotTask, on_end: OnEnd) -> None:
        name = f"region-{task.region}-attempt-{task.attempt}"
        InheritableThread(target=self._run, args=(task, on_end), name=name, daemon=True).start()

    def cancel(self, region: int, attempt: Attempt) -> None:
        """Spark ends what did not stop by itself. A task may live on for some seconds; it is fenced."""
        self._context.cancelJobGroup(_group(region, attempt))

    def executors(self) -> list[ExecutorInfo]:
        return [ExecutorInfo("driver", "localhost", self._context.defaultParallelism)]

    def replace_executor(self, executor: str) -> None:
        """An embedded Spark has one executor, which is this process."""

    def close(self) -> None:
        self._context.stop()

    def _run(self, task: SlotTask, on_end: OnEnd) -> None:
        error = None
        try:
            self._context.setJobGroup(_group(task.region, task.attempt), f"{task.job}, region {task.region}", False)
            slots = task.slots()
            rdd = self._context.parallelize(slots, len(slots))
            rdd.barrier().mapPartitions(partial(_run_slot, task)).collect()
        except Exception as failure:
            error = _first_line(failure)
        on_end(task.region, task.attempt, error)


def _group(region: int, attempt: Attempt) -> str:
    return f"region-{region}-{attempt}"


def _first_line(failure: Exception) -> str:
    java = getattr(failure, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(failure)
    return text.strip().splitlines()[0] if text.strip() else type(failure).__name__


def _run_slot(task: SlotTask, _: Iterator[Any]) -> Iterator[Any]:
    """The body of a Spark task: one slot, until it is told to stop."""
    from snapshot_engine.runtime.slot import Slot

    context = BarrierTaskContext.get()
    Slot(task, task.slots()[context.partitionId()], _executor_id()).run()
    return iter(())


def _executor_id() -> str:
    """Kubernetes tells it by the environment; a standalone worker by the name of the working folder."""
    told = os.environ.get("SPARK_EXECUTOR_ID")
    if told:
        return told
    name = Path.cwd().name
    return name if name.isdigit() else "driver"
