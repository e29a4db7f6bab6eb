"""A job's checkpoints: made, completed, listed, loaded and deleted here and nowhere else.

A checkpoint is complete when `current.json` names it. Everything that cannot be taken back (committing,
deleting what a completed checkpoint replaces) is done only after a successful swap. A driver that has been
replaced gets OwnershipLost from its next swap; what it may still delete then is only what its own successful
swaps had already given up.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage import layout
from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.current import Current, Retained
from snapshot_engine.storage.document import checksum
from snapshot_engine.storage.errors import CorruptCheckpoint, NoSuchCheckpoint, StorageError
from snapshot_engine.storage.layout import Layout
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.orphans import find_orphans
from snapshot_engine.storage.ownership import Ownership
from snapshot_engine.storage.savepoints import load_elsewhere, localise, make_self_contained
from snapshot_engine.storage.shared_pieces import SharedPieces

_RESERVED_IDS = 16
"""So many ids may be given out between two swaps; a driver that dies leaves a gap of at most this many."""
_HISTORY = 100


class CheckpointStore:
    """Thread-safe. Without `acquire` it is read-only: `latest`, `list`, `load`, `history`, `savepoints`."""

    def __init__(
        self,
        blobs: BlobStore,
        namespace: str,
        job: str,
        *,
        options: Mapping[str, Any] | None = None,
        ownership: Ownership | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`options`: for a store that `load` is given the URI of."""
        self.blobs = blobs
        self.where = Layout(namespace, job)
        self._options = options
        self._ownership = ownership or Ownership(blobs, self.where)
        self._clock = clock
        self._lock = threading.RLock()
        self._next_id = 0
        self._shared = SharedPieces()
        self._unsaved_history: list[Mapping[str, Any]] = []

    # Ownership and ids

    def acquire(self, job_uid: str, take_over: bool = False) -> int:
        """Become the job's driver; returns its generation. Raises BelongsToAnotherJob unless `take_over`."""
        with self._lock:
            try:
                current = self._ownership.acquire(job_uid, take_over, _RESERVED_IDS)
            except OSError as error:
                raise StorageError(
                    f"checkpoint storage {self.blobs.uri} cannot be used: {error}. "
                    "Expected a place that the driver and the executors may read and write"
                ) from error
            self._next_id = current.reserved_until - _RESERVED_IDS
            return current.generation

    @property
    def generation(self) -> int:
        return self._ownership.current.generation

    def next_checkpoint_id(self) -> int:
        """An id that no driver of this job has used or will use again."""
        with self._lock:
            if self._next_id >= self._ownership.current.reserved_until:
                self._ownership.update(self._reserve)
            self._next_id += 1
            return self._next_id - 1

    def release(self) -> None:
        """Give back the ids that were not used, when the driver ends in good order."""
        with self._lock:
            self._ownership.update(lambda current: replace(self._saved(current), reserved_until=self._next_id))

    # Completing

    def complete(self, manifest: Manifest, retained: int, pinned: Collection[int] = ()) -> list[Retained]:
        """Make the checkpoint complete. Returns the ones it replaces, for `delete_checkpoint`.

        The newest `retained` ones are kept, and those in `pinned`. On OwnershipLost the driver must exit. On
        OSError the checkpoint is known not to be complete and may be aborted. An unknown outcome is resolved
        in here.
        """
        with self._lock:
            before = self._ownership.current
            self._refuse_out_of_order(manifest, before)
            entry = self._write_manifest(manifest)
            event = _history_entry(manifest, entry.folder, self._shared.new_bytes(manifest))
            after = self._ownership.update(lambda current: self._add(current, entry, event, retained, pinned))
            self._shared.retain(entry.folder, manifest.shared_paths())
            self._unsaved_history.clear()
            kept = {ref.folder for ref in after.retained}
            return [ref for ref in before.retained if ref.folder not in kept]

    def complete_savepoint(self, manifest: Manifest, name: str) -> str:
        """Make a self-contained savepoint; returns its URI. It replaces nothing, and belongs to the user.

        Pieces that are not in its folder yet are copied there. The manifest comes last: without it there is
        no savepoint.
        """
        folder = layout.savepoint_folder(name)
        with self._lock:
            self._ownership.verify()
            own = make_self_contained(self.blobs, self.where, manifest, name)
            path = self.where.absolute(layout.manifest_path(folder))
            try:
                self.blobs.write(path, [own.encode()], exclusive=True)
            except FileExistsError as error:
                raise StorageError(
                    f"there is a savepoint {name!r} already ({self._uri(folder)}): choose another name"
                ) from error
            event = _history_entry(own, folder, own.size())
            self._ownership.update(lambda current: self._saved(current).with_history(event, _HISTORY))
            self._unsaved_history.clear()
        return self._uri(folder)

    def note_aborted(self, entry: Mapping[str, Any]) -> None:
        """Add an aborted checkpoint to the history; it is saved with the next swap."""
        with self._lock:
            self._unsaved_history.append(dict(entry))

    # Looking

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
        with self._lock:
            return [*(current.history if current else ()), *self._unsaved_history][-_HISTORY:]

    def savepoints(self) -> Sequence[str]:
        """The paths of all complete savepoints, relative to the job's folder; each can be given to `load`."""
        paths = [self.where.relative(path) for path, _ in self.blobs.list(self.where.absolute(layout.SAVEPOINTS))]
        folders = {layout.parse_savepoint_folder(path) for path in paths}
        return sorted(folder for folder in folders if folder and layout.manifest_path(folder) in paths)

    def load(self, which: int | str | Retained | None = None) -> Manifest:
        """A manifest, verified, whose handles a PieceReader of this job can read.

        None: the latest. An id: a retained checkpoint. A string: the path or URI of a savepoint's or a
        checkpoint's folder, of this job (`savepoints/<name>`) or elsewhere. Raises NoSuchCheckpoint or
        CorruptCheckpoint.
        """
        if isinstance(which, str) and not which.isdigit():
            return self._load_path(which)
        if isinstance(which, Retained):
            return self._load_retained(which)
        return self._load_retained(self._find(None if which is None else int(which)))

    def uri_of(self, manifest: Manifest) -> str:
        """Where the checkpoint of `manifest` is, for people."""
        return self._uri(layout.checkpoint_folder(manifest.checkpoint, manifest.generation))

    # Deleting

    def delete_checkpoint(self, ref: Retained, pending: Collection[int] = (), references: Collection[str] = ()) -> None:
        """Delete a checkpoint that `complete` returned, with the shared pieces that nothing refers to any
        more.

        `pending`: the checkpoints under way; `references`: the shared paths that their acknowledgements name.
        A subtask may take its snapshot before it learns of a completion, so a shared piece stays until all
        checkpoints that were pending when it was given up are settled.
        """
        with self._lock:
            if any(entry.folder == ref.folder for entry in self._ownership.current.retained):
                raise ValueError(f"checkpoint {ref.checkpoint} is retained")
            self._learn_retained_references()
            self._shared.give_up(self._references_of(ref), self._next_id)
            self._shared.forget(ref.folder)
            doomed = self._shared.take_doomed(pending, references)
        self._delete([layout.manifest_path(ref.folder)])
        self._delete_below(ref.folder)
        self._delete(doomed)

    def discard(
        self,
        handles: Iterable[PieceHandle],
        *,
        checkpoint: int | None = None,
        references: Collection[str] = (),
    ) -> None:
        """Delete what an aborted checkpoint wrote; of shared pieces only those that nothing else refers to.

        With `checkpoint`, everything in its folder goes, also what subtasks wrote that never acknowledged.
        """
        with self._lock:
            self._learn_retained_references()
            paths = self._shared.discardable(handles, references)
            generation = self.generation
        self._delete(paths)
        if checkpoint is not None:
            self._delete_below(layout.checkpoint_folder(checkpoint, generation))

    def deleted_among(self, handles: Iterable[PieceHandle]) -> Sequence[str]:
        """Shared pieces that this driver has deleted: an acknowledgement that names one must be declined."""
        with self._lock:
            return self._shared.deleted_among(handles)

    def delete_savepoint(self, name: str) -> None:
        folder = layout.savepoint_folder(name)
        self._delete([layout.manifest_path(folder)])
        self._delete_below(folder)

    def sweep(self, min_age: float = 3600.0, pending: Collection[int] = (), references: Collection[str] = ()) -> int:
        """Delete what crashes and older drivers left behind; returns how many files. Raises OwnershipLost.

        A file is an orphan if no retained manifest, pending checkpoint or complete savepoint can refer to it
        and it is older than `min_age` seconds, by the store's clock.
        """
        with self._lock:
            self._ownership.verify()
            self._learn_retained_references()
            listing = [(self.where.relative(path), at) for path, at in self.blobs.list(self.where.job_folder)]
            orphans = find_orphans(
                listing,
                before=self._clock() - min_age,
                generation=self.generation,
                retained={ref.folder for ref in self._ownership.current.retained},
                referenced=self._shared.referenced() | set(references),
                pending=set(pending),
            )
        self._delete(orphans)
        return len(orphans)

    # How it is done

    def _seen(self) -> Current | None:
        return self._ownership.current if self._ownership.owned else self._ownership.read()

    def _reserve(self, current: Current) -> Current:
        reserved = max(current.reserved_until, self._next_id + _RESERVED_IDS)
        return replace(self._saved(current), reserved_until=reserved)

    def _saved(self, current: Current) -> Current:
        for entry in self._unsaved_history:
            current = current.with_history(entry, _HISTORY)
        return current

    def _add(
        self,
        current: Current,
        entry: Retained,
        event: Mapping[str, Any],
        retained: int,
        pinned: Collection[int],
    ) -> Current:
        others = [ref for ref in current.retained if ref.folder != entry.folder]
        keep = {ref.folder for ref in others[len(others) + 1 - max(retained, 1) :]}
        keep |= {ref.folder for ref in others if ref.checkpoint in pinned}
        chosen = tuple(ref for ref in others if ref.folder in keep)
        return replace(self._reserve(current), retained=(*chosen, entry)).with_history(event, _HISTORY)

    def _refuse_out_of_order(self, manifest: Manifest, current: Current) -> None:
        if manifest.generation != current.generation:
            raise ValueError(f"a manifest of generation {manifest.generation} in a driver of {current.generation}")
        if current.retained and manifest.checkpoint <= current.retained[-1].checkpoint:
            raise ValueError(f"checkpoint {manifest.checkpoint} after {current.retained[-1].checkpoint}")

    def _write_manifest(self, manifest: Manifest) -> Retained:
        folder = layout.checkpoint_folder(manifest.checkpoint, manifest.generation)
        data = manifest.encode()
        self.blobs.write(self.where.absolute(layout.manifest_path(folder)), [data])
        return Retained(
            checkpoint=manifest.checkpoint,
            generation=manifest.generation,
            folder=folder,
            size=manifest.size(),
            manifest_size=len(data),
            manifest_checksum=checksum(data),
            completed_at=manifest.completed_at,
        )

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
            raise NoSuchCheckpoint(f"there is no savepoint {self._uri(folder)}; there: {there}") from error
        return localise(Manifest.decode(data, self._uri(name)), folder)

    def _references_of(self, ref: Retained) -> frozenset[str]:
        known = self._shared.known(ref.folder)
        try:
            return self._load_retained(ref).shared_paths() if known is None else known
        except StorageError:
            return frozenset()  # the sweep finds them as orphans later

    def _learn_retained_references(self) -> None:
        """A new driver reads its predecessor's manifests once.

        One that cannot be read keeps everything it may need.
        """
        for ref in self._ownership.current.retained:
            if self._shared.known(ref.folder) is None:
                self._shared.retain(ref.folder, self._load_retained(ref).shared_paths())

    def _delete(self, paths: Iterable[str]) -> None:
        self.blobs.delete([self.where.absolute(path) for path in paths])

    def _delete_below(self, folder: str) -> None:
        self.blobs.delete([path for path, _ in self.blobs.list(self.where.absolute(folder))])

    def _uri(self, path: str) -> str:
        return f"{self.blobs.uri}/{self.where.absolute(path)}".rstrip("/")


def _history_entry(manifest: Manifest, folder: str, new_bytes: int) -> dict[str, Any]:
    return {
        "id": manifest.checkpoint,
        "outcome": "Completed",
        "savepoint": manifest.savepoint,
        "triggeredAt": manifest.triggered_at,
        "completedAt": manifest.completed_at,
        "sizeBytes": new_bytes,
        "fullSizeBytes": manifest.size(),
        "path": folder,
        "criticalPath": [step.to_json() for step in manifest.critical_path],
    }
