"""Layout and manifest: what is written today must be read tomorrow."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot_engine.protocol.elements import Attempt
from snapshot_engine.state.handles import OperatorState, PieceHandle
from snapshot_engine.storage import layout
from snapshot_engine.storage.errors import CorruptCheckpoint, UnknownVersion
from snapshot_engine.storage.manifest import Manifest, PathStep, SubtaskSnapshot, Timings, VertexSnapshot
from snapshot_engine.storage.orphans import find_orphans

PIECE = PieceHandle("shared/1-a", 7, "crc32:00000000", shared=True)
STATE = OperatorState(
    "op", "counts", {"key": "int64"}, {"position": [1, None]}, (PIECE, replace(PIECE, inline=b"\x00")), ({"file": "x"},)
)
MANIFEST = Manifest(
    checkpoint=5,
    generation=2,
    job="job",
    job_uid="uid",
    triggered_at=1.5,
    completed_at=2.25,
    key_groups=128,
    vertices={
        "v": VertexSnapshot(2, {1: SubtaskSnapshot(Attempt(2, 3), (STATE,), True, {"0": 5}, Timings(1, 2, 3, 4))})
    },
    savepoint="mine",
    critical_path=(PathStep("v[1]", Timings(0.1, 0.2, 0.3, 0.4)),),
)


def test_a_manifest_survives_its_encoding() -> None:
    assert Manifest.decode(MANIFEST.encode(), "path") == MANIFEST


def test_a_manifest_is_plain_json_for_other_tools() -> None:
    document = json.loads(MANIFEST.encode())
    assert document["version"] == 1
    assert document["manifest"]["vertices"]["v"]["subtasks"]["1"]["operators"][0]["committables"] == [{"file": "x"}]


def test_a_newer_manifest_is_refused_with_its_path() -> None:
    data = MANIFEST.encode().replace(b'"version":1', b'"version":2')
    with pytest.raises(UnknownVersion, match=r"s3://x/manifest\.json has format version 2.*up to 1.*newer release"):
        Manifest.decode(data, "s3://x/manifest.json")


@given(st.integers(0, len(MANIFEST.encode()) - 2), st.integers(1, 255))
def test_no_altered_byte_goes_unnoticed(position: int, change: int) -> None:
    data = bytearray(MANIFEST.encode())
    data[position] ^= change
    try:
        found = Manifest.decode(bytes(data), "path")
    except (CorruptCheckpoint, UnknownVersion):
        return
    assert found == MANIFEST


@given(st.text(), st.text())
def test_any_two_names_give_two_safe_parts_of_a_path(left: str, right: str) -> None:
    parts = [layout.component(name) for name in (left, right)]
    assert (parts[0] == parts[1]) == (left == right)
    for part in parts:
        assert part not in ("", ".", "..")
        assert len(part) <= 80
        assert not set(part) & set("/\\%? #:*")


def test_paths_are_understood_by_the_side_that_lists_them() -> None:
    attempt = Attempt(2, 3)
    folder = layout.checkpoint_folder(5, 2)
    assert layout.parse_checkpoint_folder(layout.piece_path(folder, "v", 0, attempt, 1, "x", ".bin")) == (5, 2)
    assert layout.parse_checkpoint_folder(layout.manifest_path(folder)) == (5, 2)
    assert layout.parse_shared_generation(layout.shared_path(5, "v", 0, attempt, 1, "x", ".bin", "ab")) == 2
    savepoint = layout.savepoint_folder("a/b")
    assert layout.parse_savepoint_folder(layout.manifest_path(savepoint)) == savepoint
    for other in ("current/1.json", "notes.txt", "checkpoints/readme", "shared/x", "savepoints"):
        assert layout.parse_checkpoint_folder(other) is None
        assert layout.parse_shared_generation(other) is None
        assert layout.parse_savepoint_folder(other) is None


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4), st.booleans()), unique=True),
    st.sets(st.tuples(st.integers(1, 4), st.integers(1, 4))),
    st.sets(st.integers(1, 4)),
)
def test_no_orphan_is_retained_pending_newer_or_young(
    files: list[tuple[int, int, bool]], retained: set[tuple[int, int]], pending: set[int]
) -> None:
    listing = [(f"{layout.checkpoint_folder(n, g)}/piece-{old}", 0.0 if old else 10.0) for n, g, old in files]
    orphans = find_orphans(
        listing,
        before=5.0,
        generation=3,
        retained={layout.checkpoint_folder(*each) for each in retained},
        referenced=set(),
        pending=pending,
    )
    expected = [
        path
        for (path, _), (n, g, old) in zip(listing, files, strict=True)
        if old and (n, g) not in retained and (g < 3 or (g == 3 and n not in pending))
    ]
    assert orphans == expected
