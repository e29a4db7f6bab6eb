"""What durable logs leave on the disk, and what happens when it is full."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pyarrow as pa
import pytest

from snapshot_engine.runtime.exchanges import log_storage
from snapshot_engine.runtime.exchanges.log_storage import DiskStorage, LocalDiskFull


def files_open() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def test_what_was_put_is_read_again(tmp_path: Path) -> None:
    storage = DiskStorage("a->b.0", str(tmp_path))
    places = [storage.put(pa.py_buffer(f"number {n}".encode())) for n in range(100)]
    assert [bytes(place.read()) for place in places] == [f"number {n}".encode() for n in range(100)]


def test_a_log_has_no_names_on_the_disk_and_goes_with_its_last_record(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(log_storage, "FILE_BYTES", 10)
    before = files_open()
    storage = DiskStorage("a->b.0", str(tmp_path))
    places = [storage.put(pa.py_buffer(b"0123456789")) for _ in range(5)]
    assert list(tmp_path.iterdir()) == []
    assert files_open() == before + 5
    del places[:4]
    assert files_open() == before + 1


def test_a_full_disk_is_a_clear_failure_and_the_log_stays_readable(tmp_path: Path, monkeypatch) -> None:
    storage = DiskStorage("parse->windows.0", str(tmp_path))
    first = storage.put(pa.py_buffer(b"first"))
    real = os.pwrite
    written = []

    def full_after_three_bytes(fd: int, data: bytes, offset: int) -> int:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(real(fd, bytes(data)[:3], offset))
        return written[0]

    monkeypatch.setattr(os, "pwrite", full_after_three_bytes)
    with pytest.raises(LocalDiskFull, match=r"parse->windows\.0.*No space left.*Make room"):
        storage.put(pa.py_buffer(b"second"))
    monkeypatch.setattr(os, "pwrite", real)
    third = storage.put(pa.py_buffer(b"third"))
    assert (bytes(first.read()), bytes(third.read())) == (b"first", b"third")
