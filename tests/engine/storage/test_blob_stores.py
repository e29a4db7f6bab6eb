"""What every blob store must do, whatever is below it."""

from __future__ import annotations

import contextlib
import os
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from snapshot_engine.storage.blobs import BlobStore, SwapConflict
from snapshot_engine.storage.errors import StorageError
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.memory import MemoryBlobs
from snapshot_engine.storage.open_store import open_store


def _object_store(_: Path) -> BlobStore:
    from obstore.store import MemoryStore

    from snapshot_engine.storage.object_store import ObjectStoreBlobs

    return ObjectStoreBlobs("test://", store=MemoryStore())


def _s3(_: Path) -> BlobStore:
    """A real server, where there is one: S3_TEST_URI=s3://bucket with the usual AWS_* variables."""
    return open_store(f"{os.environ['S3_TEST_URI']}/{uuid.uuid4().hex}")


STORES: dict[str, Callable[[Path], BlobStore]] = {
    "memory": lambda _: MemoryBlobs(),
    "local": lambda path: LocalBlobs(path / "root"),
    "object store": _object_store,
}
if "S3_TEST_URI" in os.environ:
    STORES["s3"] = _s3


@pytest.fixture(params=list(STORES))
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> BlobStore:
    return STORES[request.param](tmp_path)


def test_what_was_written_is_read(blobs: BlobStore) -> None:
    assert blobs.write("a/b/c", [b"one", memoryview(b"two"), bytearray(b"three")]) == 11
    assert blobs.read("a/b/c") == b"onetwothree"


def test_more_buffers_than_one_system_call_takes(blobs: BlobStore) -> None:
    parts = [bytes([number % 251]) * (number % 7) for number in range(5000)]
    assert blobs.write("a/many", iter(parts)) == sum(map(len, parts))
    assert blobs.read("a/many") == b"".join(parts)


def test_an_empty_object_can_be_written(blobs: BlobStore) -> None:
    assert blobs.write("a/empty", []) == 0
    assert blobs.read("a/empty") == b""


def test_reading_what_is_not_there_says_so(blobs: BlobStore) -> None:
    with pytest.raises(FileNotFoundError):
        blobs.read("a/b")
    assert blobs.read_versioned("a/current.json") is None


def test_writing_again_replaces(blobs: BlobStore) -> None:
    blobs.write("a", [b"one"])
    blobs.write("a", [b"two"])
    assert blobs.read("a") == b"two"


def test_an_exclusive_write_refuses_to_replace(blobs: BlobStore) -> None:
    blobs.write("a/b", [b"one"], exclusive=True)
    with pytest.raises(FileExistsError):
        blobs.write("a/b", [b"two"], exclusive=True)
    assert blobs.read("a/b") == b"one"


def test_only_the_expected_version_is_swapped(blobs: BlobStore) -> None:
    first = blobs.swap("a/current.json", b"one", None)
    second = blobs.swap("a/current.json", b"two", first)
    for outdated in (None, first):
        with pytest.raises(SwapConflict):
            blobs.swap("a/current.json", b"three", outdated)
    assert blobs.read_versioned("a/current.json") == (b"two", second)


def test_of_many_swaps_from_one_version_exactly_one_succeeds(blobs: BlobStore) -> None:
    version: str | None = None
    for round in range(5):
        won = _race(blobs, version, round)
        assert len(won) == 1
        found = blobs.read_versioned("a/current.json")
        assert found is not None
        assert found[0] == won[0][0]
        version = won[0][1]


def _race(blobs: BlobStore, expected: str | None, round: int) -> list[tuple[bytes, str]]:
    won: list[tuple[bytes, str]] = []
    start = threading.Barrier(6)

    def run(number: int) -> None:
        data = f"{round} {number}".encode()
        start.wait()
        with contextlib.suppress(SwapConflict):
            won.append((data, blobs.swap("a/current.json", data, expected)))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return won


def test_a_listing_names_what_lies_below_a_folder_and_nothing_beside_it(blobs: BlobStore) -> None:
    for path in ("a/1", "a/b/2", "ab/3"):
        blobs.write(path, [b"x"])
    assert [path for path, _ in blobs.list("a")] == ["a/1", "a/b/2"]
    assert list(blobs.list("nothing")) == []


def test_deleting_what_is_not_there_is_no_error(blobs: BlobStore) -> None:
    blobs.write("a/1", [b"x"])
    blobs.write("a/2", [b"x"])
    blobs.delete(["a/missing", "a/1"])
    blobs.delete([])
    assert [path for path, _ in blobs.list("a")] == ["a/2"]


def test_a_copy_stands_by_itself(blobs: BlobStore) -> None:
    blobs.write("a/1", [b"x" * 10_000])
    blobs.copy("a/1", "b/1")
    blobs.delete(["a/1"])
    assert blobs.read("b/1") == b"x" * 10_000


def test_copying_what_is_not_there_says_so(blobs: BlobStore) -> None:
    with pytest.raises(FileNotFoundError):
        blobs.copy("a/1", "b/1")


def test_a_uri_names_its_store(tmp_path: Path) -> None:
    assert isinstance(open_store(str(tmp_path)), LocalBlobs)
    spaced = open_store((tmp_path / "with space").as_uri())
    assert isinstance(spaced, LocalBlobs)
    assert spaced.root == tmp_path / "with space"
    assert open_store("memory://x") is open_store("memory://x/")
    assert open_store("s3://bucket/prefix", {"region": "eu-west-1"}).uri == "s3://bucket/prefix"
    with pytest.raises(StorageError, match=r"hdfs.*known are a plain path, file://, s3://"):
        open_store("hdfs://name/path")
