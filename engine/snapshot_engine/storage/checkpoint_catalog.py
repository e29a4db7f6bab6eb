"""What a job's storage holds, for whoever only looks: the command line, and the driver before it acquires anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from snapshot_engine.storage import layout
from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.current import Current, Retained
from snapshot_engine.storage.document import checksum
from snapshot_engine.storage.errors import CorruptCheckpoint, NoSuchCheckpoint
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.ownership import Ownership
from snapshot_engine.storage.savepoints import load_elsewhere, localise


class CheckpointCatalog:
    """Reads; changes nothing. The owner's view is what it wrote last, any other's is what is there now."""

    def __init__(
        self,
        blobs: BlobStore,
        namespace: str,
        job: str,
        *,
        options: Mapping[str, Any] | None = None,
        ownership: Ownership | None = None,
    ) -> None:
        """`options`: for a store that `load` is given the URI of."""
        self.blobs = blobs
        self.where = Layout(namespace, job)
        self._options = options
        self._ownership = ownership or Ownership(blobs, self.where)

    def latest(self) -> Retained | None:
        retained = self.list()
        return retained[-1] if retained else None

    def list(self) -> Sequence[Retained]:
        """The completed checkpoints that are retained, oldest first."""
        current = self._seen()
        return current.retained if current else ()

    def history(self) -> Sequence[Mapping[str, Any]]:
        """The last checkpoints and savepoints, completed or aborted, oldest first."""
        current = self._seen()
        return current.history if current else ()

    def restarts(self) -> Sequence[Mapping[str, Any]]:
        """The last restarts of regions, oldest first."""
        current = self._seen()
        return current.restarts if current else ()

    def savepoints(self) -> Sequence[str]:
        """The paths of all complete savepoints, relative to the job's folder; each can be given to `load`."""
        paths = [self.where.relative(path) for path, _ in self.blobs.list(self.where.absolute(layout.SAVEPOINTS))]
        folders = {layout.parse_savepoint_folder(path) for path in paths}
        return sorted(folder for folder in folders if folder and layout.manifest_path(folder) in paths)

    def load(self, which: int | str | Retained | None = None) -> Manifest:
        """A manifest, verified, whose handles a PieceReader of this job can read.

        None: the latest. An id: a retained checkpoint. A string: the path or URI of a savepoint's or a checkpoint's
        folder, of this job (`savepoints/<name>`) or elsewhere. Raises NoSuchCheckpoint or CorruptCheckpoint.
        """
        if isinstance(which, str) and not which.isdigit():
            return self._load_path(which)
        if isinstance(which, Retained):
            return self._load_retained(which)
        return self._load_retained(self._find(None if which is None else int(which)))

    def uri_of(self, manifest: Manifest) -> str:
        """Where a completed checkpoint lies."""
        return self._uri(layout.checkpoint_folder(manifest.checkpoint, manifest.generation))

    def _seen(self) -> Current | None:
        return self._ownership.current if self._ownership.owned else self._ownership.read()

    def _find(self, checkpoint: int | None) -> Retained:
        known = self.list()
        for ref in reversed(known):
            if checkpoint in (None, ref.checkpoint):
                return ref
        there = ", ".join(str(ref.checkpoint) for ref in known) or "none"
        wanted = "completed checkpoint" if checkpoint is None else f"checkpoint {checkpoint}"
        raise NoSuchCheckpoint(f"{self._uri('')} has no {wanted}; retained: {there}")

    def _load_retained(self, ref: Retained) -> Manifest:
        path = layout.manifest_path(ref.folder)
        uri = self._uri(path)
        try:
            data = self.blobs.read(self.where.absolute(path))
        except FileNotFoundError as error:
            raise CorruptCheckpoint(uri, f"{ref.manifest_size} bytes", "no such file") from error
        if (len(data), checksum(data)) != (ref.manifest_size, ref.manifest_checksum):
            expected = f"{ref.manifest_size} bytes with checksum {ref.manifest_checksum}"
            raise CorruptCheckpoint(uri, expected, f"{len(data)} bytes with {checksum(data)}")
        return Manifest.decode(data, uri)

    def _load_path(self, path: str) -> Manifest:
        folder = path.rstrip("/").removesuffix(f"/{layout.MANIFEST}").removeprefix(self._uri("") + "/")
        if layout.parse_savepoint_folder(folder) != folder:
            return load_elsewhere(path, self._options)
        name = layout.manifest_path(folder)
        try:
            data = self.blobs.read(self.where.absolute(name))
        except FileNotFoundError as error:
            there = ", ".join(self.savepoints()) or "none"
            raise NoSuchCheckpoint(f"there is no savepoint {self._uri(folder)}; savepoints there: {there}") from error
        return localise(Manifest.decode(data, self._uri(name)), folder)

    def _uri(self, path: str) -> str:
        return f"{self.blobs.uri}/{self.where.absolute(path)}".rstrip("/")
