"""A job that is told to stop from outside ends with a last checkpoint, whoever else of its processes is told."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark

MANIFEST = """
apiVersion: streamingjob.dev/v1alpha1
kind: StreamingJob
metadata:
  name: endless
spec:
  pipeline:
    source: |
      from snapshot_engine.connectors.bids import bids
      from snapshot_engine.connectors.discard import DiscardSink

      def pipeline(env):
          env.from_source(bids(rate=1000), uid="bids").sink_to(DiscardSink(), uid="out")
  checkpoint:
    interval: 200ms
"""


SLOW_TO_PLAN = MANIFEST.replace(
    "def pipeline(env):",
    """def pipeline(env):
          import time
          print("planning", flush=True)
          time.sleep(60)""",
)


@contextmanager
def running(tmp_path: Path, text: str = MANIFEST) -> Iterator[subprocess.Popen[str]]:
    manifest = tmp_path / "endless.yaml"
    manifest.write_text(textwrap.dedent(text))
    command = [str(Path(sys.executable).with_name("streamingjob")), "run", str(manifest)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as job:
        yield job


def lines_until(job: subprocess.Popen[str], words: str) -> list[str]:
    assert job.stdout is not None
    said = []
    for line in job.stdout:
        said.append(line)
        if words in line:
            break
    return said


def rest_of(job: subprocess.Popen[str]) -> list[str]:
    assert job.stdout is not None
    return job.stdout.readlines()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_whole_process_group_stops_the_job_with_a_last_checkpoint(
    tmp_path: Path, number: signal.Signals
) -> None:
    """As `timeout`, systemd, shells and closed terminals send it: Spark is told as well, and must not end before the
    job has."""
    with running(tmp_path) as job:
        said = lines_until(job, "checkpoint 1 ")
        os.killpg(job.pid, number)
        said += rest_of(job)
    text = "".join(said)
    assert job.returncode == 0, text
    assert "stopped after checkpoint" in text and "stopped: stopped" not in text
    assert "Traceback" not in text and "failed" not in text, text


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.0, 0.5])
def test_whoever_is_interrupted_while_spark_starts_leaves_no_jvm_behind(
    tmp_path: Path, number: signal.Signals, seconds: float
) -> None:
    with running(tmp_path) as job:
        said = lines_until(job, "starting Spark")
        while not (jvms := children_of(job.pid)):
            time.sleep(0.01)
        time.sleep(seconds)
        os.killpg(job.pid, number)
        said += rest_of(job)
    text = "".join(said)
    assert job.returncode == 130, text
    after_the_first = [line for line in text.splitlines()[1:] if not line.startswith("WARNING: ")]  # those are Java's
    assert after_the_first == ["interrupted before the job had begun; nothing was changed"]
    assert not any(Path(f"/proc/{pid}").exists() for pid in jvms)


@pytest.mark.timeout(60)
def test_whoever_is_interrupted_while_the_job_is_planned_is_told_the_same(tmp_path: Path) -> None:
    with running(tmp_path, SLOW_TO_PLAN) as job:
        lines_until(job, "planning")
        os.killpg(job.pid, signal.SIGINT)
        said = rest_of(job)
    assert job.returncode == 130
    assert said == ["interrupted before the job had begun; nothing was changed\n"]


@pytest.mark.timeout(180)
def test_a_job_whose_terminal_is_closed_stops_with_a_last_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "endless.yaml").write_text(textwrap.dedent(MANIFEST))
    pid, terminal = pty.fork()
    if pid == 0:
        command = str(Path(sys.executable).with_name("streamingjob"))
        os.execv(command, [command, "run", "--plain", str(tmp_path / "endless.yaml")])
    said = b""
    while b"checkpoint 1 completed" not in said:
        said += os.read(terminal, 4096)
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    word = json.loads((tmp_path / ".streamingjob" / "default-endless.json").read_text())
    assert word["said"].startswith("stopped after checkpoint")


def children_of(pid: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(stat.parent.name))
    return found
