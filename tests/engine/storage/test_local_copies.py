"""Local copies are short cuts: they count only if they match the checkpoint."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.pieces import PieceOptions, PieceWriter, StorageConfig

LARGE = PieceOptions(inline_below=0)
TABLE = pa.table({"key": list(range(1000))})


class Machine:
    """One machine's view of storage, with its copies."""

    def __init__(self, folder: Path) -> None:
        self.config = StorageConfig(str(folder / "storage"), Layout("ns", "job"), {}, LARGE, local_recovery=True)
        self.blobs = LocalBlobs(str(folder / "storage"))
        self.folder = str(folder / "local")
        self.copies = self.config.copies(self.folder)
        self.reader = self.config.reader(self.blobs, self.copies)

    def write(self, checkpoint: int) -> PieceHandle:
        writer = PieceWriter(
            self.blobs,
            self.config.where,
            checkpoint=checkpoint,
            vertex="windows",
            subtask=0,
            attempt=Attempt(1, 1),
            options=LARGE,
            copies=self.copies,
        )
        return writer.write_table("state", TABLE)

    def local_files(self) -> list[Path]:
        return [file for file in Path(self.folder).rglob("*") if file.is_file()]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_a_piece_is_read_from_the_copy_without_storage(machine: Machine) -> None:
    handle = machine.write(1)
    machine.blobs.delete([machine.config.where.absolute(handle.path)])
    assert machine.reader.read_table(handle).equals(TABLE)
    assert machine.copies is not None and machine.copies.hits == 1


@pytest.mark.parametrize("damage", [b"", b"something else"])
def test_a_copy_that_does_not_match_is_ignored(machine: Machine, damage: bytes) -> None:
    handle = machine.write(1)
    machine.local_files()[0].write_bytes(damage)
    assert machine.reader.read_table(handle).equals(TABLE)
    assert machine.copies is not None and machine.copies.hits == 0


def test_without_a_copy_storage_is_read(machine: Machine) -> None:
    handle = machine.write(1)
    machine.local_files()[0].unlink()
    assert machine.reader.read_table(handle).equals(TABLE)


def test_copies_of_older_checkpoints_are_deleted(machine: Machine) -> None:
    machine.write(1)
    kept = machine.write(2)
    assert machine.copies is not None
    machine.copies.keep_only({kept.path})
    assert [file.name for file in machine.local_files()] == [kept.path.rsplit("/", 1)[-1]]


def test_a_copy_that_cannot_be_written_is_done_without(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "local").write_text("a file where the folder should be")
    assert machine.reader.read_table(machine.write(1)).equals(TABLE)


def test_copies_are_made_only_where_they_are_wanted(tmp_path: Path) -> None:
    assert StorageConfig(str(tmp_path), Layout("ns", "job")).copies() is None


def test_nothing_is_left_of_copies_that_are_of_no_use(machine: Machine) -> None:
    """Not even a folder: a job makes one with each checkpoint, and every slot that starts looks through them all."""
    assert machine.copies is not None
    for checkpoint in range(1, 4):
        kept = machine.write(checkpoint)
        machine.copies.keep_only({kept.path})
    folders = [path for path in Path(machine.folder).rglob("*") if path.is_dir()]
    assert not [folder for folder in folders if not list(folder.iterdir())]
    assert machine.reader.read_table(kept).equals(TABLE) and machine.copies.hits == 1


def test_a_copy_that_cannot_be_deleted_does_no_harm(machine: Machine) -> None:
    handle = machine.write(1)
    [copy] = machine.local_files()
    copy.unlink()
    (copy / "something").mkdir(parents=True)  # for root, too, a deletion that fails
    assert machine.copies is not None
    machine.copies.keep_only(set())
    assert machine.reader.read_table(handle).equals(TABLE)
