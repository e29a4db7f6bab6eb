"""CPU time and memory of a whole tree, ended children included."""

import subprocess
import sys
import time

from benchmarks.process_tree import (
    ProcessTimes,
    TreeWatch,
    all_processes,
    cpu_seconds,
    parse_stat,
    proportional_bytes,
    tree,
)

BURN = "import time; end = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"


def test_a_command_name_with_blanks_and_brackets_does_not_shift_the_fields() -> None:
    line = "42 (a (very) odd) name) S 7 42 42 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0"
    assert parse_stat(line) == ProcessTimes(parent=7, own_ticks=30, children_ticks=70)


def test_a_tree_is_the_root_and_all_below_it() -> None:
    processes = {pid: ProcessTimes(parent, 0, 0) for pid, parent in ((1, 0), (2, 1), (3, 2), (4, 1), (9, 8))}
    assert tree(2, processes) == {2, 3}
    assert tree(1, processes) == {1, 2, 3, 4}
    assert tree(77, processes) == set()


def test_cpu_time_of_a_child_that_has_ended_is_counted() -> None:
    code = f"import subprocess, sys, time; subprocess.run([sys.executable, '-c', {BURN!r}]); time.sleep(30)"
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and cpu_seconds(parent.pid) < 0.3:
            time.sleep(0.05)
        assert cpu_seconds(parent.pid) >= 0.3
        assert proportional_bytes(tree(parent.pid, all_processes())) > 1_000_000
    finally:
        parent.kill()
        parent.wait()


def test_cpu_time_of_a_child_that_nobody_waits_for_is_watched() -> None:
    """As Spark's daemon has its workers: with SIGCHLD ignored, what they used is not added to their parent's times."""
    code = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
subprocess.Popen([sys.executable, "-c", {BURN!r}])
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    try:
        watch = TreeWatch(parent.pid)
        watch.start()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and watch.cpu_seconds < 0.25:
            time.sleep(0.05)
        while len(tree(parent.pid, all_processes())) > 1 and time.monotonic() < deadline:
            time.sleep(0.05)
        watch.stop()
        assert watch.cpu_seconds >= 0.25
        assert watch.peak_bytes > 1_000_000
    finally:
        parent.kill()
        parent.wait()
