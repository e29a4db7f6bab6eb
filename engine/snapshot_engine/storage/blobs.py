"""The few things checkpoint storage asks of a file system or an object store.

Every implementation names its primitive for `swap`: that one call is what makes a checkpoint complete, and
what keeps two drivers from both believing that they own the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class SwapConflict(Exception):
    """Somebody else has changed the object since it was read."""


class OutcomeUnknown(Exception):
    """The store did not say whether the write took place: read back before anything else."""


class BlobStore(Protocol):
    """Paths are relative to the root given at construction, with `/` between their parts."""

    uri: str

    def write(self, path: str, buffers: Iterable[Buffer], *, exclusive: bool = False) -> int:
        """Write an object whole and durably (file and folder fsynced) or not at all; returns its size.

        With `exclusive`, raises FileExistsError if there is one already; two callers never both succeed.
        """
        ...

    def read(self, path: str) -> bytes:
        """Raises FileNotFoundError."""
        ...

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        """The content with the version that `swap` wants, or None if there is none."""
        ...

    def whereabouts(self, path: str, version: str | None = None) -> str:
        """Where a person finds what `read_versioned` has read, for messages; without `version`, all that there is."""
        ...

    def swap(self, path: str, data: bytes, expected: str | None) -> str:
        """Replace the content if its version is still `expected` (None: if there is none yet); returns the
        new version.

        Raises SwapConflict, or OutcomeUnknown.
        """
        ...

    def list(self, prefix: str) -> Sequence[tuple[str, float]]:
        """All objects below `prefix` with their modification times (epoch seconds)."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Missing ones are no error."""
        ...

    def copy(self, source: str, target: str) -> None: ...
