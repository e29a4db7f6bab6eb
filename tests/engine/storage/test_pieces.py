"""Pieces of state: written whole, read back verified, small ones inline."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.errors import CorruptCheckpoint, StateTooLarge
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.memory import MemoryBlobs
from snapshot_engine.storage.pieces import PieceOptions, PieceReader, PieceWriter, StorageConfig

WHERE = Layout("ns", "job")


def _writer(blobs: BlobStore, savepoint: str | None = None, **options: Any) -> PieceWriter:
    return PieceWriter(
        blobs,
        WHERE,
        checkpoint=5,
        vertex="count",
        subtask=3,
        attempt=Attempt(2, 7),
        savepoint=savepoint,
        options=PieceOptions(**options),
    )


def _table(rows: int) -> pa.Table:
    return pa.table(
        {"key": np.arange(rows), "name": [f"name {n}" for n in range(rows)], "list": [[n] for n in range(rows)]}
    )


@pytest.mark.parametrize("compression", [None, "lz4"])
def test_a_table_comes_back_as_it_was(blobs: MemoryBlobs, compression: str | None) -> None:
    table = _table(10_000)
    handle = _writer(blobs, compression=compression).write_table("state", table)
    assert handle.inline is None
    assert handle.path == "checkpoints/5-2/count/3-2.7-1-state.arrow"
    assert handle.size == len(blobs.read(WHERE.absolute(handle.path)))
    assert PieceReader(blobs, WHERE).read_table(handle).equals(table)


def test_a_slice_of_a_larger_table_is_written_alone(blobs: MemoryBlobs) -> None:
    table = _table(100_000).slice(50_000, 1000)
    handle = _writer(blobs).write_table("state", table)
    assert handle.size < 100_000
    assert PieceReader(blobs, WHERE).read_table(handle).equals(table)


def test_a_table_can_be_written_to_an_object_store() -> None:
    from obstore.store import MemoryStore

    from snapshot_engine.storage.object_store import ObjectStoreBlobs

    blobs = ObjectStoreBlobs("test://", store=MemoryStore())
    handle = _writer(blobs).write_table("state", _table(10_000))
    assert PieceReader(blobs, WHERE).read_table(handle).equals(_table(10_000))


@pytest.mark.parametrize("rows", [0, 1])
def test_small_pieces_travel_inline(blobs: MemoryBlobs, rows: int) -> None:
    writer = _writer(blobs)
    handle = writer.write_table("state", _table(rows), shared=True)
    assert handle.inline is not None
    assert not handle.shared
    assert blobs.list("") == []
    assert writer.written == []
    restored = PieceHandle.from_json(handle.to_json())
    assert PieceReader(blobs, WHERE).read_table(restored).equals(_table(rows))


def test_names_are_unique_and_say_who_wrote_them(blobs: MemoryBlobs) -> None:
    writer, again = _writer(blobs, inline_below=0), _writer(blobs, inline_below=0)
    handles = [writer.write_bytes("x", b"a"), writer.write_bytes("x", b"b")]
    handles += [each.write_bytes("x", b"c", shared=True) for each in (writer, again)]
    assert len({handle.path for handle in handles}) == 4
    assert [handle.shared for handle in handles] == [False, False, True, True]
    assert all(handle.path.startswith("shared/2-count-3-7-5-") for handle in handles[2:])
    assert writer.written == handles[:3]
    assert writer.paths() == [WHERE.absolute(handle.path) for handle in handles[:3]]
    assert writer.size == 3


def test_a_savepoints_pieces_are_never_shared(blobs: MemoryBlobs) -> None:
    handle = _writer(blobs, savepoint="mine", inline_below=0).write_bytes("x", b"a", shared=True)
    assert handle.path == "savepoints/mine/count/3-2.7-1-x.bin"
    assert not handle.shared


def test_the_memory_backend_writes_no_file_and_refuses_large_state(blobs: MemoryBlobs) -> None:
    writer = _writer(blobs, all_inline=True, largest_inline=1000)
    handle = writer.write_bytes("x", b"a" * 900)
    assert PieceReader(blobs, WHERE).read_bytes(handle) == b"a" * 900
    with pytest.raises(
        StateTooLarge, match=r"count\[3\] has at least 1101 bytes.*at most 1000.*stateBackend to filesyst"
    ):
        writer.write_bytes("y", b"a" * 201)
    assert blobs.list("") == []


@pytest.mark.parametrize("inline", [False, True])
def test_damage_is_found(blobs: MemoryBlobs, inline: bool) -> None:
    handle = _writer(blobs, all_inline=inline, inline_below=0).write_bytes("x", b"abcdef")
    reader = PieceReader(blobs, WHERE)
    for damaged, expected in ((b"abc", "6 bytes, found 3 bytes"), (b"abcdeF", "checksum crc32:.*, found crc32:")):
        if inline:
            handle = replace(handle, inline=damaged)
        else:
            blobs.write(WHERE.absolute(handle.path), [damaged])
        with pytest.raises(CorruptCheckpoint, match=expected):
            reader.read_bytes(handle)


def test_a_damaged_piece_is_named_by_its_full_path(blobs: MemoryBlobs, tmp_path: Path) -> None:
    there = LocalBlobs(tmp_path)
    handle = _writer(there, inline_below=1).write_bytes("x", b"abcdef")
    file = tmp_path / WHERE.absolute(handle.path)
    for damage in (lambda: file.write_bytes(b"abc"), lambda: file.write_bytes(b"abcdeF"), file.unlink):
        damage()
        for reader in (PieceReader(there, WHERE), PieceReader(blobs, WHERE)):
            named = handle if reader.blobs is there else replace(handle, path=file.as_uri())
            with pytest.raises(CorruptCheckpoint) as damaged:
                reader.read_bytes(named)
            assert damaged.value.path == file.as_uri()


def test_bytes_that_are_no_table_are_reported_as_such(blobs: MemoryBlobs) -> None:
    handle = _writer(blobs).write_bytes("x", b"abcdef")
    with pytest.raises(CorruptCheckpoint, match="expected an Arrow file"):
        PieceReader(blobs, WHERE).read_table(handle)


def test_what_a_slot_is_told_pickles() -> None:
    config = StorageConfig("memory://pickled", WHERE, {"a": "b"}, PieceOptions(compression="lz4"))
    assert pickle.loads(pickle.dumps(config)) == config
    assert config.open().uri == "memory://pickled"
