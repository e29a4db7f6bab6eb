"""Running other programs to their end."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from localcluster.errors import ClusterError

Argument = str | Path

PR_SET_PDEATHSIG = 1
KERNEL = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_the_caller() -> None:
    """A build or a kubectl whose caller was killed would go on alone, and `down` would not know of it."""
    if KERNEL:
        KERNEL.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(
    command: Sequence[Argument],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str | IO[bytes] | None = None,
    timeout: float | None = None,
) -> str:
    """Its standard output; a ClusterError with what it said if it fails, does not end in time, or is not there."""
    given = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin}
    try:
        done = subprocess.run(
            [str(part) for part in command],
            env=env,
            cwd=cwd,
            **given,
            capture_output=True,
            text=True,
            timeout=timeout,
            preexec_fn=die_with_the_caller,
            check=False,
        )
    except subprocess.TimeoutExpired as expired:
        raise ClusterError(f"`{shown(command)}` did not end in {expired.timeout:g} s and was killed") from None
    except FileNotFoundError as error:
        raise ClusterError(f"`{shown(command)}` cannot be run: there is no {error.filename}") from None
    if done.returncode:
        raise ClusterError(failure_message(command, done.returncode, done.stdout + done.stderr))
    return done.stdout


def succeeds(command: Sequence[Argument], *, env: Mapping[str, str] | None = None) -> bool:
    return subprocess.run([str(part) for part in command], env=env, capture_output=True, check=False).returncode == 0


def run_logged(
    command: Sequence[Argument], log: Path, *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> None:
    """For what takes minutes: its output goes to a file, whose end is shown if it fails."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as output:
        done = subprocess.run(
            [str(part) for part in command],
            env=env,
            cwd=cwd,
            stdout=output,
            stderr=subprocess.STDOUT,
            preexec_fn=die_with_the_caller,
            check=False,
        )
    if done.returncode:
        raise ClusterError(
            failure_message(command, done.returncode, log.read_text(errors="replace")), f"All of it: {log}"
        )


def failure_message(command: Sequence[Argument], code: int, output: str) -> str:
    end = "\n".join(output.strip().splitlines()[-15:])
    return f"`{shown(command)}` failed with exit code {code}:\n{end}"


def shown(command: Sequence[Argument]) -> str:
    return " ".join(str(part) for part in command)[:200]
