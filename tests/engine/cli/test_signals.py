"""A job that is told to stop from outside ends with a last checkpoint, whoever else of its processes is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
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


@pytest.mark.timeout(180)
def test_a_signal_to_the_whole_process_group_stops_the_job_with_a_last_checkpoint(tmp_path: Path) -> None:
    """As `timeout`, systemd and shells send it: Spark is told as well, and must not end before the job has."""
    manifest = tmp_path / "endless.yaml"
    manifest.write_text(textwrap.dedent(MANIFEST))
    command = [str(Path(sys.executable).with_name("streamingjob")), "run", str(manifest)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as job:
        assert job.stdout is not None
        said = []
        for line in job.stdout:
            said.append(line)
            if "checkpoint 1 " in line:
                break
        os.killpg(job.pid, signal.SIGTERM)
        said += job.stdout.readlines()
    text = "".join(said)
    assert job.returncode == 0, text
    assert "stopped after checkpoint" in text
    assert "Traceback" not in text and "failed" not in text, text
