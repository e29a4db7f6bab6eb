"""The JVM as a process of ours: PySpark gives it out only when it is up, and one left behind before that never ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

ENDING_SECONDS = 3.0
"""How long it has to remove its temporary files."""
_ADDRESS_FILE = "_PYSPARK_DRIVER_CONN_INFO_PATH"

_started: list[JvmProcess] = []


class JvmProcess(subprocess.Popen[bytes]):
    """Known from before it is started."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.address_file: str | None = (options.get("env") or {}).get(_ADDRESS_FILE)
        _started.append(self)
        super().__init__(*arguments, **options)


def end_started() -> None:
    """Returns when no JVM that was started here lives any more. May be called by a signal's handler at any point."""
    for process in _started:
        _end(process)
        if process.address_file is not None:  # where it would write its address: PySpark removes it when it has it
            shutil.rmtree(Path(process.address_file).parent, ignore_errors=True)


def _end(process: JvmProcess) -> None:
    if getattr(process, "pid", None) is None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is not None:
            return
        _send(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)


def _send(pid: int, number: signal.Signals) -> None:
    """To all of its session: the script that starts a JVM has children too."""
    with contextlib.suppress(ProcessLookupError):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:  # it has no session of its own yet
            os.kill(pid, number)
