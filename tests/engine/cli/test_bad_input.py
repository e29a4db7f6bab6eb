"""Each mistake gets a message that says what and where, and an exit code; nothing has been started by then."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from snapshot_engine.cli import main, running
from snapshot_engine.cli.running import announce, leave_word, withdraw
from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.runtime.embedded import open_job_store
from snapshot_engine.runtime.job_result import JobResult, Outcome
from snapshot_engine.runtime.job_settings import settings_of
from snapshot_engine.state.handles import OperatorState
from snapshot_engine.storage.manifest import Manifest, SubtaskSnapshot, VertexSnapshot
from snapshot_engine.wire import control
from snapshot_engine.wire.manifest import load_manifest

PIPELINE = """
from snapshot_engine.api import Environment
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink

def pipeline(env: Environment) -> None:
    env.from_source(bids(count=10), uid="bids").sink_to(DiscardSink(), uid="out")
"""


def write_job(folder: Path, spec: str = "", pipeline: str = PIPELINE, entrypoint: str = "job.py:pipeline") -> Path:
    (folder / "job.py").write_text(pipeline)
    manifest = folder / "job.yaml"
    manifest.write_text(
        textwrap.dedent(
            f"""\
            apiVersion: streamingjob.dev/v1alpha1
            kind: StreamingJob
            metadata:
              name: job
            spec:
              pipeline:
                entrypoint: {entrypoint}
            """
        )
        + textwrap.indent(textwrap.dedent(spec), "  ")
    )
    return manifest


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_a_sound_manifest_is_planned(tmp_path: Path) -> None:
    result = invoke("plan", write_job(tmp_path))
    assert result.exit_code == 0, result.output
    assert "region 0" in result.output


def test_an_unknown_field_is_named_with_its_line_and_a_suggestion(tmp_path: Path) -> None:
    result = invoke("run", write_job(tmp_path, "paralelism: 2\n"))
    assert result.exit_code == 2
    assert "spec.paralelism" in result.output and "parallelism" in result.output
    assert "job.yaml:8" in result.output


def test_a_module_that_does_not_import_shows_the_users_own_line(tmp_path: Path) -> None:
    result = invoke("run", write_job(tmp_path, pipeline="import no_such_module\n"))
    assert result.exit_code == 65
    assert "no_such_module" in result.output and "job.py" in result.output


def test_a_function_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    result = invoke("run", write_job(tmp_path, entrypoint="job.py:pipelin"))
    assert result.exit_code == 65
    assert "pipelin" in result.output and "pipeline" in result.output


def test_a_pipeline_that_raises_while_planning_shows_where(tmp_path: Path) -> None:
    result = invoke("run", write_job(tmp_path, pipeline="def pipeline(env):\n    raise ValueError('no such luck')\n"))
    assert result.exit_code == 65
    assert "no such luck" in result.output and "job.py:2" in result.output


def test_storage_that_cannot_be_written_is_told_before_spark_starts(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    manifest = write_job(tmp_path, f"checkpoint:\n  storage:\n    uri: {locked}/ck\n")
    command = [sys.executable, "-c", "from snapshot_engine.cli import main; main()", "run", str(manifest)]
    if os.geteuid() == 0:  # who may write everywhere, unless told otherwise
        command = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override", *command]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == 68, result.stderr
    assert str(locked) in result.stderr
    assert "starting Spark" not in result.stdout + result.stderr


def test_storage_below_a_file_is_told_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_engine.cli.run.launch_on_spark", lambda *_: pytest.fail("Spark was started"))
    (tmp_path / "file").write_text("")
    result = invoke("run", write_job(tmp_path, f"checkpoint:\n  storage:\n    uri: {tmp_path}/file/ck\n"))
    assert result.exit_code == 68
    assert f"{tmp_path}/file/ck" in result.output


def test_a_backend_that_is_not_there_yet_is_refused(tmp_path: Path) -> None:
    result = invoke("run", write_job(tmp_path, "checkpoint:\n  stateBackend: rocksdb\n"))
    assert result.exit_code == 65
    assert "rocksdb" in result.output and "filesystem" in result.output


def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("snapshot_engine.cli.run.launch_on_spark", lambda *_: pytest.fail("Spark was started"))


@pytest.mark.parametrize("which", ["no-such-name", "99", "/no/such/folder"])
def test_a_restore_from_what_is_not_there_is_told_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    no_spark(monkeypatch)
    result = invoke("run", write_job(tmp_path), "--restore", which)
    assert result.exit_code == 68
    assert which in result.output


def test_a_job_that_runs_here_already_is_not_started_a_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_spark(monkeypatch)
    manifest = write_job(tmp_path)
    file = tmp_path / ".streamingjob" / "default-job.json"
    with socket.create_server(("127.0.0.1", 0)) as server:
        announce(file, server.getsockname()[1], "token")
        result = invoke("run", manifest)
    assert result.exit_code == 2
    assert f"process {os.getpid()}" in result.output and "streamingjob stop" in result.output
    withdraw(file)
    assert not file.exists()


def test_what_a_successor_has_announced_stays(tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps({"url": "http://127.0.0.1:1", "token": "its own", "pid": os.getppid()}))
    withdraw(file)
    assert file.exists()


def test_a_job_that_was_killed_is_not_taken_for_one_that_runs(tmp_path: Path) -> None:
    """Another process may have its number by now: in a container it is even the same each time."""
    manifest = write_job(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    announce(tmp_path / ".streamingjob" / "default-job.json", port, "token")
    result = invoke("status", manifest)
    assert result.exit_code == 2
    assert "streamingjob run" in result.output


def test_commands_that_need_a_running_job_say_how_to_start_one(tmp_path: Path) -> None:
    manifest = write_job(tmp_path)
    for command in (["status"], ["savepoint"], ["stop"]):
        result = invoke(*command, manifest)
        assert result.exit_code == 2
        assert "streamingjob run" in result.output


@pytest.mark.parametrize("command", [("savepoint", "--name"), ("stop", "--savepoint")], ids=" ".join)
def test_a_name_that_no_savepoint_can_have_is_told_before_the_job_is_asked(
    tmp_path: Path, command: tuple[str, str]
) -> None:
    result = invoke(command[0], write_job(tmp_path), command[1], "Before/Monday")
    assert result.exit_code == 2
    assert "'Before/Monday' is no savepoint's name" in result.output


def test_a_stop_is_either_at_once_or_with_a_savepoint(tmp_path: Path) -> None:
    result = invoke("stop", write_job(tmp_path), "--savepoint", "monday", "--cancel")
    assert result.exit_code == 2
    assert "--cancel takes no savepoint" in result.output


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", b"+PONG\r\n", b""])
def test_somebody_else_at_the_jobs_address_is_not_taken_for_it(tmp_path: Path, answer: bytes) -> None:
    """A job that was killed could not withdraw its address, and its port may be another program's by now."""
    manifest = write_job(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        announce(tmp_path / ".streamingjob" / "default-job.json", server.getsockname()[1], "token")
        stranger = threading.Thread(target=_answer, args=(server, answer), daemon=True)
        stranger.start()
        result = invoke("status", manifest)
        stranger.join(5)
    assert result.exit_code == 2, result.output
    assert "does not answer" in result.output


def _answer(server: socket.socket, answer: bytes) -> None:
    for _ in range(2):  # the first only looks whether somebody is there
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)


@contextmanager
def a_job_that_answers(tmp_path: Path, answers: dict[str, Any]) -> Iterator[Path]:
    """Its manifest. `answers`: by method and path."""

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = answers[f"{self.command} {self.path}"]
            data = json.dumps(answer() if callable(answer) else answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: Any) -> None: ...

    manifest = write_job(tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        announce(tmp_path / ".streamingjob" / "default-job.json", server.server_address[1], "token")
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield manifest
        finally:
            server.shutdown()


@pytest.mark.timeout(20)
def test_a_stop_whose_savepoint_has_failed_says_so_and_that_the_job_goes_on(tmp_path: Path) -> None:
    pending = {"name": "the-end", "state": "Pending", "requestedAt": "2026-01-01T00:00:00Z"}
    failed = {**pending, "state": "Failed", "error": "there is a savepoint 'the-end' already"}
    answers = {
        f"POST {control.STOP_PATH}": {"accepted": True, "savepoint": pending},
        f"GET {control.savepoint_path('the-end')}": failed,
        f"GET {control.STATUS_PATH}": {},
    }
    with a_job_that_answers(tmp_path, answers) as manifest:
        result = invoke("stop", manifest, "--savepoint", "the-end")
    assert result.exit_code == 2, result.output
    assert "there is a savepoint 'the-end' already" in result.output and "goes on" in result.output


ENDS = {
    "stopped": (JobResult(Outcome.STOPPED, "stopped after checkpoint 5"), 0, "stopped after checkpoint 5"),
    "failed": (JobResult(Outcome.FAILED, "the disk is full", history=["the job: no space"]), 64, "no space"),
    "interrupted": (JobResult(Outcome.STOPPED, "stopped without a last checkpoint", cut_short=True), 130, "without"),
    "killed": (None, 1, "gone without a word"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("end", ENDS)
def test_a_stop_says_how_the_job_has_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    result, code, words = ENDS[end]

    def stop() -> dict[str, bool]:
        if result is not None:
            leave_word(tmp_path / ".streamingjob" / "default-job.json", "token", result)
        monkeypatch.setattr(running, "is_alive", lambda _: False)
        return {"accepted": True}

    with a_job_that_answers(tmp_path, {f"POST {control.STOP_PATH}": stop}) as manifest:
        told = invoke("stop", manifest)
    assert told.exit_code == code, told.output
    assert words in told.output
    assert "stopped: stopped" not in told.output


def test_a_job_that_was_cancelled_as_asked_was_stopped_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop() -> dict[str, bool]:
        result = JobResult(Outcome.STOPPED, "cancelled by request", cut_short=True)
        leave_word(tmp_path / ".streamingjob" / "default-job.json", "token", result)
        monkeypatch.setattr(running, "is_alive", lambda _: False)
        return {"accepted": True}

    with a_job_that_answers(tmp_path, {f"POST {control.STOP_PATH}": stop}) as manifest:
        told = invoke("stop", manifest, "--cancel")
    assert (told.exit_code, told.output) == (0, "stopped: cancelled by request\n")


def test_a_last_word_is_not_taken_for_a_job_that_runs(tmp_path: Path) -> None:
    manifest = write_job(tmp_path)
    file = tmp_path / ".streamingjob" / "default-job.json"
    with socket.create_server(("127.0.0.1", 0)) as server:
        announce(file, server.getsockname()[1], "token")
        leave_word(file, "another's", JobResult(Outcome.FINISHED))
        assert running.last_word(file, "token") is None
        leave_word(file, "token", JobResult(Outcome.FINISHED))
        withdraw(file)
        assert "streamingjob run" in invoke("status", manifest).output
    assert running.last_word(file, "token") is not None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("before", [{"state": "Completed", "path": "/ck/monday"}, {"state": "Failed", "error": "no"}])
def test_what_became_of_an_earlier_savepoint_is_not_told_as_a_new_one(tmp_path: Path, before: dict[str, str]) -> None:
    known = {"name": "monday", **before}
    answers = {
        f"POST {control.SAVEPOINTS_PATH}": known,
        f"GET {control.savepoint_path('monday')}": known,
    }
    with a_job_that_answers(tmp_path, answers) as manifest:
        result = invoke("savepoint", manifest, "--name", "monday")
    assert result.exit_code == 2, result.output
    assert "'monday' was asked for before" in result.output and "choose another name" in result.output


@pytest.mark.timeout(20)
def test_a_stop_with_a_savepoint_is_not_said_to_be_done_where_another_stop_was_first(tmp_path: Path) -> None:
    with a_job_that_answers(tmp_path, {f"POST {control.STOP_PATH}": {"accepted": True}}) as manifest:
        result = invoke("stop", manifest, "--savepoint", "the-end")
    assert result.exit_code == 2, result.output
    assert "stopping already" in result.output and "'the-end'" in result.output


@pytest.mark.parametrize("which", ["..", "a b", "nix"])
def test_a_savepoint_that_is_not_there_is_told_whatever_its_name(tmp_path: Path, which: str) -> None:
    result = invoke("inspect", write_job(tmp_path), which)
    assert result.exit_code == 68
    assert "there is no savepoint" in result.output


def test_a_job_without_checkpoints_is_listed_as_such(tmp_path: Path) -> None:
    result = invoke("checkpoints", write_job(tmp_path))
    assert result.exit_code == 0, result.output
    assert "no checkpoint" in result.output


def test_long_names_are_whole_for_whoever_reads_a_checkpoint_in_a_pipe(tmp_path: Path) -> None:
    uid = "bids-of-auctions-that-were-opened-by-people-in-the-north"
    job = write_job(tmp_path)
    store = open_job_store(settings_of(load_manifest(job), str(tmp_path / ".streamingjob" / "checkpoints")))
    store.acquire("embedded-default-job")
    vertex = VertexSnapshot(1, {0: SubtaskSnapshot(Attempt(1, 1), (OperatorState(uid, "source"),))})
    store.complete(
        Manifest(store.next_checkpoint_id(), store.generation, "job", "uid", 0.0, 1.0, 128, {uid: vertex}), retained=3
    )
    result = invoke("inspect", job)
    assert result.exit_code == 0, result.output
    assert result.output.count(uid) == 2  # as a vertex and as its operator


def test_a_time_without_a_unit_is_told_before_anything_is_read(tmp_path: Path) -> None:
    result = invoke("run", write_job(tmp_path), "--for", "30")
    assert result.exit_code == 2
    assert "--for" in result.output and "unit" in result.output


def test_a_port_that_there_is_not_is_refused(tmp_path: Path) -> None:
    result = invoke("run", write_job(tmp_path), "--port", "999999")
    assert result.exit_code == 2
    assert "999999 is not in the range 0<=x<=65535" in result.output


def test_a_port_that_is_taken_is_told_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_spark(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        result = invoke("run", write_job(tmp_path), "--port", port)
    assert result.exit_code == 2, result.output
    assert f"--port {port}" in result.output and "use" in result.output


def test_an_operator_whose_name_is_no_text_is_named_with_its_line(tmp_path: Path) -> None:
    pipeline = PIPELINE.replace('bids(count=10), uid="bids")', 'bids(count=10), uid="bids").name(5)')
    result = invoke("plan", write_job(tmp_path, pipeline=pipeline))
    assert result.exit_code == 65, result.output
    assert "its name is 5, but must be text" in result.output
    assert "job.py:7" in result.output
