"""One at a time: several people and test runs may share one cache folder."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def one_at_a_time(file: Path, say: Callable[[str], None] = lambda _: None) -> Iterator[None]:
    """Held until the block ends, however it ends; says so when it has to wait."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another command holds {file}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
