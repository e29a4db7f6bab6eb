"""A blob store that fails when it is told to: for tests and the simulator.

Calls can be held for as long as one likes. They are counted, and the one that is due fails before it has done anything,
or after it has done all of it; in the second case the caller cannot know, which is what a lost answer looks like.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from snapshot_engine.storage.blobs import BlobStore, Buffer, OutcomeUnknown

T = TypeVar("T")


class Crashed(BaseException):
    """The process is dead: no handler may go on from here."""


@dataclass
class Fault:
    """`call`: the number of the call that fails, from 0. `lasts`: how many calls in a row fail."""

    call: int
    after: bool = False
    error: type[BaseException] = OSError
    lasts: int = 1

    def hits(self, call: int, after: bool) -> bool:
        return self.after == after and self.call <= call < self.call + self.lasts


@dataclass
class Held:
    """Calls that wait before they do anything, in their own threads."""

    part: str
    begun: threading.Event = field(default_factory=threading.Event)
    """One of them waits, or has waited."""
    let_go: threading.Event = field(default_factory=threading.Event)


class FaultyBlobs:
    def __init__(self, inner: BlobStore, *faults: Fault) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.faults = list(faults)
        self.calls: list[str] = []
        """What was called, in order: the number of a call is its index here."""
        self._held: list[Held] = []

    def write(self, path: str, buffers: Iterable[Buffer], *, exclusive: bool = False) -> int:
        return self._call(f"write {path}", lambda: self.inner.write(path, buffers, exclusive=exclusive))

    def read(self, path: str) -> bytes:
        return self._call(f"read {path}", lambda: self.inner.read(path))

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        return self._call(f"read_versioned {path}", lambda: self.inner.read_versioned(path))

    def whereabouts(self, path: str, version: str | None = None) -> str:
        return self.inner.whereabouts(path, version)

    def swap(self, path: str, data: bytes, expected: str | None) -> str:
        return self._call(f"swap {path}", lambda: self.inner.swap(path, data, expected), unknown=OutcomeUnknown)

    def list(self, prefix: str) -> Sequence[tuple[str, float]]:
        return self._call(f"list {prefix}", lambda: self.inner.list(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        wanted = [*paths]
        self._call(f"delete {len(wanted)} objects", lambda: self.inner.delete(wanted))

    def copy(self, source: str, target: str) -> None:
        self._call(f"copy {source}", lambda: self.inner.copy(source, target))

    def hold(self, part: str) -> Held:
        """From now on, calls whose description contains `part` wait to be let go."""
        self._held.append(Held(part))
        return self._held[-1]

    def _call(self, what: str, do: Callable[[], T], unknown: type[Exception] | None = None) -> T:
        number = len(self.calls)
        self.calls.append(what)
        for held in self._held:
            if held.part in what:
                held.begun.set()
                held.let_go.wait()
        self._fail(number, what, after=False, unknown=unknown)
        result = do()
        self._fail(number, what, after=True, unknown=unknown)
        return result

    def _fail(self, number: int, what: str, after: bool, unknown: type[Exception] | None) -> None:
        for fault in self.faults:
            if fault.hits(number, after):
                # For a swap, a plain OSError promises that nothing has happened.
                error: Any = unknown if unknown and fault.error is OSError else fault.error
                raise error(f"{what}: deliberate failure {'after' if after else 'before'} call {number}")
