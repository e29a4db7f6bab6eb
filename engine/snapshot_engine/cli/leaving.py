"""Signals that ask a command to end before there is a job: it leaves at once, and takes with it what it has started."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

INTERRUPTED = 130
"""As shells have it: 128 plus the number of SIGINT."""


def stopping_signals() -> Sequence[signal.Signals]:
    """A hangup is none where it is ignored: under `nohup` a job is to outlive its terminal."""
    always = [signal.SIGINT, signal.SIGTERM]
    return always if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [*always, signal.SIGHUP]


@contextmanager
def leaving_when_signalled() -> Iterator[None]:
    """Until somebody else handles the signals: the job, once it runs."""
    before = {number: signal.signal(number, _leave) for number in stopping_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is _leave:
                signal.signal(number, handler)


def _leave(*_: Any) -> None:
    """Not by an exception: imports of compiled modules make others of it, and PySpark would talk to a JVM that ends."""
    for number in stopping_signals():
        signal.signal(number, signal.SIG_IGN)
    jvm = sys.modules.get("snapshot_engine.runtime.jvm_process")
    try:
        if jvm is not None:  # without it, nothing was started
            jvm.end_started()
        os.write(2, b"interrupted before the job had begun; nothing was changed\n")  # to a terminal that may be gone
    finally:
        os._exit(INTERRUPTED)
