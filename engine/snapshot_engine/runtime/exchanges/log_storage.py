"""Where a log's records are: in memory, or in files on the producer's local disk.

A file has no name: it is gone as soon as nothing refers to it, also when the slot is killed. Nothing has to be cleaned
up after a crash, and nobody can read a log whose slot is dead.
"""

from __future__ import annotations

import os
import tempfile
from typing import Protocol

import pyarrow as pa

FILE_BYTES = 16 << 20
"""A file is given back as a whole, when the last of its records is forgotten."""


class LocalDiskFull(Exception):
    """A durable exchange could not write to the local disk. The log is as it was before."""


class Payload(Protocol):
    """The bytes of one batch, as they go over the wire."""

    def read(self) -> memoryview: ...


class InMemory:
    __slots__ = ("_buffer",)

    def __init__(self, buffer: pa.Buffer) -> None:
        self._buffer = buffer

    def read(self) -> memoryview:
        return memoryview(self._buffer)


class InFile:
    """A place in a file, which lives as long as someone holds a place in it."""

    __slots__ = ("_file", "_offset", "_size")

    def __init__(self, file: LogFile, offset: int, size: int) -> None:
        self._file = file
        self._offset = offset
        self._size = size

    def read(self) -> memoryview:
        data = os.pread(self._file.fd, self._size, self._offset)
        if len(data) != self._size:
            raise OSError(f"{len(data)} of {self._size} bytes at {self._offset} of a log file are left")
        return memoryview(data)


class LogFile:
    __slots__ = ("fd", "size")

    def __init__(self, folder: str) -> None:
        self.fd = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
        self.size = 0

    def append(self, buffer: pa.Buffer) -> InFile:
        """All of it, or nothing: what a failed write left behind is written over by the next."""
        written = 0
        view = memoryview(buffer)
        while written < len(view):
            written += os.pwrite(self.fd, view[written:], self.size + written)
        place = InFile(self, self.size, written)
        self.size += written
        return place

    def __del__(self) -> None:
        os.close(self.fd)


class MemoryStorage:
    def put(self, buffer: pa.Buffer) -> Payload:
        return InMemory(buffer)


class DiskStorage:
    """Shared by the logs of one subtask along one edge."""

    def __init__(self, edge: str, folder: str | None = None) -> None:
        self._edge = edge
        self._folder = folder or tempfile.gettempdir()
        self._file: LogFile | None = None

    def put(self, buffer: pa.Buffer) -> Payload:
        try:
            if self._file is None or self._file.size >= FILE_BYTES:
                self._file = LogFile(self._folder)
            return self._file.append(buffer)
        except OSError as error:
            raise LocalDiskFull(
                f"the durable exchange {self._edge} could not write {buffer.size} bytes to the local disk at "
                f"{self._folder}: {error.strerror}. Make room there, point TMPDIR (or spark.local.dir) to a larger "
                "disk, checkpoint more often, or use a committed exchange"
            ) from error
