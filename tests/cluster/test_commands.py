"""Programs that hang, fail or are not there: said in words, with what was run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from localcluster.commands import run
from localcluster.errors import ClusterError
from localcluster.processes import Process
from localcluster.settings import REPOSITORY
from localcluster.testing.evidence import keep_evidence
from localcluster.testing.kubectl import Kubectl
from localcluster.testing.namespace import Namespace
from localcluster.waiting import wait_for


def test_a_command_that_hangs_is_killed_and_named():
    with pytest.raises(ClusterError, match=r"`sleep 600` did not end in 0\.1 s"):
        run(["sleep", "600"], timeout=0.1)


def test_a_program_that_is_not_there_is_named():
    with pytest.raises(ClusterError, match="there is no no-such-program"):
        run(["no-such-program", "--version"])


def test_what_was_awaited_is_said_even_if_the_explanation_fails():
    def explain():
        raise ClusterError("nobody answers")

    with pytest.raises(ClusterError, match=r"in vain for the moon(.|\n)*nobody answers"):
        wait_for("the moon", lambda: None, seconds=0, explain=explain)


class ImpatientKubectl(Kubectl):
    def __call__(self, *arguments, stdin=None, timeout=None):
        return super().__call__(*arguments, stdin=stdin, timeout=0.05)


@pytest.fixture
def hanging_kubectl(tmp_path):
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nexec sleep 600\n")
    program.chmod(0o755)
    return ImpatientKubectl(str(program), None)


def test_evidence_that_cannot_be_had_never_raises(hanging_kubectl, tmp_path):
    said = keep_evidence(Namespace(hanging_kubectl, "gone"), tmp_path / "evidence")
    assert "not all evidence could be kept" in said
    assert "did not end in 0.05 s" in said
    assert str(tmp_path / "evidence" / "events.txt") in said


def test_a_folder_that_cannot_be_written_is_no_error_either(hanging_kubectl, tmp_path):
    (tmp_path / "file").touch()
    assert "not all evidence" in keep_evidence(Namespace(hanging_kubectl, "gone"), tmp_path / "file" / "evidence")


@pytest.mark.parametrize("call", ["run(['sleep', '600'])", "run_logged(['sleep', '600'], Path('log'))"])
def test_a_command_ends_with_its_caller_that_is_killed(call, tmp_path):
    script = f"from pathlib import Path; from localcluster.commands import *; {call}"
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "hack" / "cluster")}
    caller = subprocess.Popen([sys.executable, "-c", script], env=env, cwd=tmp_path)
    try:
        command = wait_for("its command", lambda: child_that_sleeps(caller.pid), seconds=20)
    finally:
        caller.kill()
        caller.wait()
    try:
        assert command.wait_until_gone(10)
    finally:
        command.kill()


def child_that_sleeps(pid):
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text().strip() == "sleep":
            return Process.of(int(child))
    return None
