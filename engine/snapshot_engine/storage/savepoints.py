"""Savepoints: self-contained folders that can be moved anywhere, and restoring from a folder elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage import layout
from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.errors import CorruptCheckpoint, NoSuchCheckpoint
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.open_store import open_store


def make_self_contained(
    blobs: BlobStore, where: Layout, manifest: Manifest, name: str, options: Mapping[str, Any] | None = None
) -> Manifest:
    """The savepoint's manifest: every piece lies in its folder, and every path is relative to it.

    No piece of a savepoint is shared: whoever restores from it must not refer to pieces that the user may
    delete.
    """
    folder = layout.savepoint_folder(name)
    copies: dict[str, str] = {}

    def own(handle: PieceHandle) -> PieceHandle:
        if handle.inline is not None:
            return replace(handle, path=handle.path.rsplit("/", 1)[-1], shared=False)
        path = handle.path
        if layout.parse_savepoint_folder(path) != folder:
            path = copies.get(handle.path) or layout.savepoint_copy_path(folder, len(copies), handle.path)
            if handle.path not in copies:
                _copy(blobs, where, handle, path, options)
                copies[handle.path] = path
        return replace(handle, path=path.removeprefix(f"{folder}/"), shared=False)

    return replace(manifest.with_handles(own), savepoint=name)


def _copy(blobs: BlobStore, where: Layout, handle: PieceHandle, target: str, options: Mapping[str, Any] | None) -> None:
    """A subtask that had finished before the job was restored from elsewhere has its pieces there still."""
    try:
        if "://" not in handle.path:
            blobs.copy(where.absolute(handle.path), where.absolute(target))
            return
        place, _, file = handle.path.rpartition("/")
        blobs.write(where.absolute(target), [open_store(place, options).read(file)])
    except FileNotFoundError as error:
        uri = handle.path if "://" in handle.path else f"{blobs.uri}/{where.absolute(handle.path)}"
        raise CorruptCheckpoint(uri, f"{handle.size} bytes", "no such file") from error


def localise(manifest: Manifest, base: str) -> Manifest:
    """A manifest whose handles are relative to `base`, with handles as a PieceReader wants them."""

    def resolve(handle: PieceHandle) -> PieceHandle:
        return handle if handle.inline is not None else replace(handle, path=f"{base}/{handle.path}", shared=False)

    return manifest.with_handles(resolve)


def load_elsewhere(place: str, options: Mapping[str, Any] | None) -> Manifest:
    """The manifest in the folder at `place`: a path or URI, of a savepoint or of another job's checkpoint."""
    uri = place if "://" in place else Path(place).absolute().as_uri()
    folder = uri.rstrip("/").removesuffix(f"/{layout.MANIFEST}")
    try:
        data = open_store(folder, options).read(layout.MANIFEST)
    except FileNotFoundError as error:
        raise NoSuchCheckpoint(
            f"there is no {layout.MANIFEST} in {folder}; expected a savepoint's or a checkpoint's folder"
        ) from error
    manifest = Manifest.decode(data, f"{folder}/{layout.MANIFEST}")
    # A checkpoint's paths are relative to its job's folder, two levels up.
    return localise(manifest, folder if manifest.savepoint is not None else folder.rsplit("/", 2)[0])
