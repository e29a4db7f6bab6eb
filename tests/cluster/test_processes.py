"""Processes that outlive the command that started them are found again, whatever became of that command."""

import subprocess
import sys

import pytest
from localcluster.processes import Process, ProcessFolder
from localcluster.waiting import wait_for


@pytest.fixture
def folder(tmp_path):
    started = ProcessFolder(tmp_path)
    yield started
    for name in ("one", "other"):
        started.stop(name)


def test_a_process_is_found_by_its_record_and_stopped(folder):
    process = folder.start("one", ["sleep", "600"])
    assert folder.find("one") == process
    folder.stop("one")
    assert not process.alive
    assert folder.find("one") is None


def test_a_process_whose_starter_died_before_it_wrote_the_record_is_stopped_too(folder):
    process, other = folder.start("one", ["sleep", "600"]), folder.start("other", ["sleep", "600"])
    folder.record("one").unlink()
    folder.stop("one")
    assert not process.alive
    assert other.alive


def test_what_it_started_itself_goes_with_it(folder):
    script = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    folder.start("one", [sys.executable, "-c", script])
    child = Process.of(int(wait_for("its child", lambda: folder.last_lines("one").strip(), seconds=10)))
    assert child.alive
    folder.stop("one")
    assert not child.alive


def test_a_record_of_a_process_id_that_another_has_now_is_not_believed(folder):
    somebody = subprocess.Popen(["sleep", "600"])
    try:
        folder.remember("one", somebody.pid)
        record = folder.record("one")
        record.write_text(record.read_text().replace(str(Process.of(somebody.pid).started), "1"))
        folder.stop("one")
        assert somebody.poll() is None
    finally:
        somebody.kill()
        somebody.wait()
