"""Spark as the engine's cluster: it schedules, places, isolates and ends slots. The only file that imports pyspark.

Each attempt of a region is one Spark job: a barrier-mode stage with a task per slot, in a job group of its own. Barrier
mode is gang scheduling: all slots of a region run, or none. A failed slot ends that Spark job and no other; restarting
is the JobMaster's.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import RDD, BarrierTaskContext, InheritableThread, SparkConf, SparkContext, cloudpickle, java_gateway
from pyspark.serializers import CPickleSerializer
from pyspark.sql import SparkSession

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.jvm_process import JvmProcess
from snapshot_engine.runtime.launcher import ExecutorInfo, OnEnd
from snapshot_engine.runtime.placements import Placements
from snapshot_engine.runtime.slot_task import SlotTask
from snapshot_engine.runtime.spark_failures import told_by_spark
from snapshot_engine.runtime.spark_settings import OWNED_SETTINGS
from snapshot_engine.state.state_types import note_field_types

log = logging.getLogger(__name__)

LOCAL_EXECUTOR = "driver"
"""What Spark calls the one executor of a `local` master."""
ARRIVAL_SECONDS = 600.0
"""A slot that was given an executor and has not said a word for so long will not. An executor's first Python process
may take minutes on a busy machine; an executor that is known to be lost is not waited for at all."""
WARM_ARRIVAL_SECONDS = 10.0
"""The same where Python processes are known to be there, and a slot takes a fraction of a second: an executor that does
not answer hangs or is out of reach, and is replaced.
"""
REPLACEMENT_WAITS_SECONDS = 2.0
"""A new executor takes processors to start. Where the reserve takes over, that comes first."""
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
    return context_of(settings)


def context_of(settings: Mapping[str, str]) -> SparkContext:
    """A Spark with exactly these settings. Takes some seconds."""
    # What Spark calls an error is often none (a driver pod that is not ready yet, a cancelled task), and would be taken
    # for the reason of whatever comes next.
    quiet = {"spark.log.level": "FATAL", **settings}
    conf = SparkConf().setAll(list(quiet.items()))
    _start_jvm(conf)
    on_interrupt = signal.getsignal(signal.SIGINT)
    context = SparkContext.getOrCreate(conf)
    if on_interrupt is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, on_interrupt)  # Spark's own answer to Ctrl-C leaves the process to a traceback
    _hush_accumulators(context)
    return context


def _start_jvm(conf: SparkConf) -> None:
    """In a session of its own. A signal to the whole process group (by `timeout`, systemd, a shell) is for the driver
    to answer, and its last checkpoint needs Spark. The JVM ends when its pipe to this process closes.
    """
    if SparkContext._gateway is None:
        vars(java_gateway)["Popen"] = JvmProcess
        gateway = java_gateway.launch_gateway(conf, popen_kwargs={"start_new_session": True})  # type: ignore[no-untyped-call]
        SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _hush_accumulators(context: SparkContext) -> None:
    """No accumulator is used here. The JVM may hang up on their server before it is shut down, of which it would print
    a traceback at the end of a job that went well.
    """
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None


def ship_by_value(module: ModuleType) -> None:
    """The slots cannot import `module` (it was loaded from a file or from the manifest): send its code along."""
    note_field_types(module)
    cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


class SparkLauncher:
    """Starts attempts as Spark jobs, each waited for by a thread of its own."""

    def __init__(self, context: SparkContext, control_host: str = "127.0.0.1", instances: int = 1) -> None:
        """`instances`: on how many executors slots are placed; the others are the reserve."""
        self._context = context
        self._scala = context._jsc.sc()
        self._placements = Placements(self._list_executors, instances)
        self._touched: set[str] = set()
        self.warm: set[str] = set()
        """Executors whose Python process is there, so that a slot starts at once."""
        self._hosts: dict[str, str] = {}
        """By executor, as last seen: each question to Spark takes time that a recovery waits for."""
        self.control_host = control_host

    @property
    def application_id(self) -> str | None:
        return str(self._context.applicationId)

    def launch(self, task: SlotTask, on_end: OnEnd) -> None:
        name = f"region-{task.region}-attempt-{task.attempt}"
        InheritableThread(target=self._run, args=(task, on_end), name=name, daemon=True).start()

    def cancel(self, region: int, attempt: Attempt) -> None:
        """Spark ends what did not stop by itself. A task may live on for some seconds; it is fenced."""
        self._placements.give_up(region, attempt)
        self._context.cancelJobGroup(_group(region, attempt))

    def slot_started(self, region: int, attempt: Attempt, slot: int, executor: str) -> None:
        self._placements.slot_started(region, attempt, slot, executor)
        self.warm.add(executor)

    def slot_ended(self, region: int, attempt: Attempt, slot: int, lost: bool) -> None:
        self._placements.slot_ended(region, attempt, slot, lost)

    def executors(self) -> list[ExecutorInfo]:
        in_use = self._placements.in_use()
        found = [replace(executor, standby=executor.id not in in_use) for executor in self._placements.usable()]
        if self._placements.settled():
            self._warm_up([executor.id for executor in found if executor.standby])
        return found

    def replace_executor(self, executor: str) -> bool:
        """Fenced at once. Spark ends it if it lives, and asks for another; plain killing would not ask for one.

        The executor of an embedded Spark is this process: there is no other, and it lives if this is read.
        """
        if executor == LOCAL_EXECUTOR:
            return False
        in_vain = self._placements.fence(executor)
        if in_vain is not None:
            name = f"replace-{executor}"
            InheritableThread(target=self._replace, args=(executor, in_vain), name=name, daemon=True).start()
        return True

    def close(self) -> None:
        self._context.stop()

    def _replace(self, executor: str, in_vain: Sequence[tuple[int, Attempt]]) -> None:
        try:
            for region, attempt in in_vain:
                self._context.cancelJobGroup(_group(region, attempt))
            if self._has_reserve():
                time.sleep(REPLACEMENT_WAITS_SECONDS)
            done = self._scala.killAndReplaceExecutor(executor)
            log.info("executor %s %s", executor, "is being replaced" if done else "was not Spark's any more")
        except Exception as failure:
            log.warning("executor %s could not be replaced: %s", executor, _first_line(failure))

    def _has_reserve(self) -> bool:
        in_use = self._placements.in_use()
        return any(executor.id not in in_use for executor in self._placements.usable())

    def _warm_up(self, reserve: Sequence[str]) -> None:
        """An executor's first Python process takes seconds to start: in reserve it is started before it is needed."""
        for executor in reserve:
            if executor != LOCAL_EXECUTOR and executor not in self._touched:
                self._touched.add(executor)
                name = f"warm-up-{executor}"
                InheritableThread(target=self._touch, args=(executor,), name=name, daemon=True).start()

    def _touch(self, executor: str) -> None:
        try:
            self._context.setJobGroup(f"warm-up-{executor}", "a task that does nothing", False)
            # In barrier mode, as slots are: what Spark needs for that is loaded then as well.
            reached = self._located([executor]).barrier().mapPartitions(_say_where).collect()
        except Exception as failure:
            log.info("executor %s was not warmed up: %s", executor, _first_line(failure))
            reached = []
        if reached == [executor]:
            self.warm.add(executor)
        else:
            self._touched.discard(executor)  # it went elsewhere: again at the next look

    def _list_executors(self) -> list[ExecutorInfo]:
        found = self._scala.statusStore().executorList(True)
        summaries = [found.apply(index) for index in range(found.size())]
        executors = [
            ExecutorInfo(str(summary.id()), str(summary.hostPort()).rpartition(":")[0], int(summary.totalCores()))
            for summary in summaries
        ]
        self._hosts.update({executor.id: executor.host for executor in executors})
        return [executor for executor in executors if executor.slots > 0]

    def _run(self, task: SlotTask, on_end: OnEnd) -> None:
        error, placed = None, None
        try:
            placed = self._placements.choose(task.region, task.attempt, task.slots())
            if placed is not None:
                log.info("region %d, attempt %s: to executor %s", task.region, task.attempt, _named(placed))
                self._submit(task, placed)
        except Exception as failure:
            arrived = self._placements.arrived(task.region, task.attempt)
            error = told_by_spark(_text(failure), task.slots(), placed or {}, arrived)
        self._placements.attempt_ended(task.region, task.attempt)
        on_end(task.region, task.attempt, error)

    def _submit(self, task: SlotTask, placed: Mapping[int, str]) -> None:
        self._context.setJobGroup(_group(task.region, task.attempt), f"{task.job}, region {task.region}", False)
        are_warm = self.warm.issuperset(placed.values()) and LOCAL_EXECUTOR not in placed.values()
        patience = WARM_ARRIVAL_SECONDS if are_warm else ARRIVAL_SECONDS
        overdue = threading.Timer(patience, self._cancel_if_absent, (task, placed if are_warm else {}))
        overdue.daemon = True
        overdue.start()
        try:
            self._located([placed[slot] for slot in task.slots()]).barrier().mapPartitions(
                partial(_run_slot, task)
            ).collect()
        finally:
            overdue.cancel()

    def _cancel_if_absent(self, task: SlotTask, warm: Mapping[int, str]) -> None:
        """Spark has launched it somewhere that does not answer: the JobMaster tries again.

        `warm`: the executors that should have answered long ago, by slot.
        """
        if not self._placements.all_arrived(task.region, task.attempt, task.slots()):
            arrived = self._placements.arrived(task.region, task.attempt)
            silent = {executor for slot, executor in warm.items() if slot not in arrived}
            log.warning(
                "region %d: slots did not arrive in time; executors replaced: %s", task.region, silent or "none"
            )
            for executor in silent:
                self.replace_executor(executor)
            self._context.cancelJobGroup(_group(task.region, task.attempt))

    def _located(self, executors: Sequence[str]) -> RDD[Any]:
        """A partition for each slot, that prefers the executor it is placed on, and goes anywhere if that is full."""
        jvm = self._context._jvm
        assert jvm is not None
        empty = CPickleSerializer().dumps(None)  # type: ignore[no-untyped-call]
        pairs = [
            jvm.scala.Tuple2(bytearray(empty), _scala_seq(jvm, [f"executor_{self._hosts[each]}_{each}"]))
            for each in executors
        ]
        bytes_tag = jvm.scala.reflect.ClassTag.apply(jvm.java.lang.Class.forName("[B"))
        located = self._scala.makeRDD(_scala_seq(jvm, pairs), bytes_tag)
        return RDD(located.toJavaRDD(), self._context, CPickleSerializer())


def _scala_seq(jvm: Any, items: Sequence[Any]) -> Any:
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(list(items))


def _named(placed: Mapping[int, str]) -> str:
    return ", ".join(sorted(set(placed.values())))


def _group(region: int, attempt: Attempt) -> str:
    return f"region-{region}-{attempt}"


def _first_line(failure: Exception) -> str:
    return _text(failure).strip().splitlines()[0]


def _text(failure: Exception) -> str:
    java = getattr(failure, "java_exception", None)
    text = str(java.getMessage()) if java is not None else str(failure)
    return text if text.strip() else type(failure).__name__


def _run_slot(task: SlotTask, _: Iterator[Any]) -> Iterator[Any]:
    """The body of a Spark task: one slot, until it is told to stop."""
    from snapshot_engine.runtime.slot import Slot

    context = BarrierTaskContext.get()
    Slot(task, task.slots()[context.partitionId()], _executor_id()).run()
    return iter(())


def _say_where(_: Iterable[Any]) -> Iterable[Any]:
    return [_executor_id()]


def _executor_id() -> str:
    """Kubernetes tells it by the environment; a standalone worker by the name of the working folder."""
    told = os.environ.get("SPARK_EXECUTOR_ID")
    if told:
        return told
    name = Path.cwd().name
    return name if name.isdigit() else "driver"
