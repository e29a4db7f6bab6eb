"""Waiting for a condition, and saying what was awaited when it does not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from localcluster.errors import ClusterError

Result = TypeVar("Result")


def wait_for(
    what: str,
    condition: Callable[[], Result | None],
    *,
    seconds: float,
    every: float = 0.1,
    explain: Callable[[], str] = lambda: "",
) -> Result:
    """The first true value of `condition`; after `seconds`, an error with `what` and the explanation."""
    deadline = time.monotonic() + seconds
    while True:
        if result := condition():
            return result
        if time.monotonic() >= deadline:
            raise ClusterError(f"waited {seconds:.0f} s in vain for {what}", explanation(explain))
        time.sleep(every)


def explanation(explain: Callable[[], str]) -> str:
    """What was awaited is said even where nothing can be found out about it."""
    try:
        return explain()
    except ClusterError as error:
        return f"(and no more can be said: {error})"
