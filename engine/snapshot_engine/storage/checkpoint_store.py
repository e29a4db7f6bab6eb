"""A job's checkpoints: made, completed and deleted here and nowhere else.

A checkpoint is complete when `current.json` names it. Everything that cannot be taken back (committing, deleting what a
completed checkpoint replaces) is done only after a successful swap. A driver that has been replaced gets OwnershipLost
from its next swap; what it may still delete then is only what its own successful swaps had already given up.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from snapshot_engine.state.handles import PieceHandle
from snapshot_engine.storage import layout
from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.checkpoint_catalog import CheckpointCatalog
from snapshot_engine.storage.current import OF_MANIFEST, Current, LeftLine, Retained
from snapshot_engine.storage.document import checksum
from snapshot_engine.storage.errors import NoIdsLeft, NoSuchCheckpoint, StorageError, UnusableStorage
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.storage.orphans import find_orphans
from snapshot_engine.storage.ownership import Ownership
from snapshot_engine.storage.savepoints import make_self_contained
from snapshot_engine.storage.shared_pieces import SharedPieces

_RESERVED_IDS = 16
"""So many ids may be given out between two swaps; a driver that dies leaves a gap of at most this many."""
_HISTORY = 100
_LEFT_LINES = 8
"""So many are known by name."""
_WAYS_BACK = 2
"""The last checkpoints of so many of them are kept, for whoever rolls the restore back that left them."""
WAY_BACK_SECONDS = 86400.0
"""And for so long."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """All drivers that have had one job's storage, one after the other: the same over restarts, upgrades and restores
    of that job, another for every other job, also one of the same name.
    """

    id: str
    since: int
    """The first generation whose driver has put `id` into the names it gave."""


class CheckpointStore(CheckpointCatalog):
    """Thread-safe. Without `acquire` it can only do what a catalog does.

    Completing and deleting wait for the storage, for as long as it takes: call them from a thread of their own.
    So do `acquire`, `release` and `reserve_ids`. `next_checkpoint_id`, `note_aborted`, `deleted_among`, `list`,
    `latest` and `history` of an owner wait for neither the storage nor those calls.
    """

    def __init__(
        self,
        blobs: BlobStore,
        namespace: str,
        job: str,
        *,
        options: Mapping[str, Any] | None = None,
        ownership: Ownership | None = None,
        clock: Callable[[], float] = time.time,
        restore_id: str | None = None,
    ) -> None:
        """`restore_id`: see `acquire`; for whoever only looks at what a driver would start from."""
        super().__init__(blobs, namespace, job, options=options, ownership=ownership)
        self._clock = clock
        self._completing = threading.RLock()
        self._saving = threading.Lock()
        self._counting = threading.Lock()
        self._next_id = 0
        self._refusal = ""
        """Why there were no new ids when they were last asked for."""
        self._shared = SharedPieces()
        self._unsaved_history: list[Mapping[str, Any]] = []
        self._restore_id = restore_id
        self._unsaved_restarts: list[Mapping[str, Any]] = []

    # Ownership and ids

    def acquire(
        self, job_uid: str, take_over: bool = False, *, driver: int | None = None, restore_id: str | None = None
    ) -> int:
        """Become the job's driver; returns its generation. Raises BelongsToAnotherJob unless `take_over`.

        `driver` is its number where drivers are numbered; `restore_id` names the restore that it was launched with.
        """
        self._restore_id = restore_id
        try:
            current = self._ownership.acquire(job_uid, take_over, _RESERVED_IDS, driver)
        except OSError as error:
            raise UnusableStorage(self.blobs.uri, error) from error
        self._next_id = current.reserved_until - _RESERVED_IDS
        return current.generation

    @property
    def generation(self) -> int:
        return self._ownership.current.generation

    @property
    def lineage(self) -> Lineage:
        """Whose generations this driver's is one of. A copy of the storage in another place is another's."""
        current = self._ownership.current
        named = f"{current.lineage} {self._uri('')}"
        return Lineage(hashlib.blake2b(named.encode(), digest_size=6).hexdigest(), current.lineage_since)

    @property
    def restore_is_done(self) -> bool:
        """Whether the restore that this driver was launched with has led to a checkpoint already, which then counts."""
        current = self._seen()
        return self._restore_id is not None and current is not None and current.line == self._restore_id

    @property
    def left_line(self) -> LeftLine | None:
        """What the restore that this driver was launched with has led to, if it was left by another one meanwhile."""
        current = self._seen()
        if current is None or self._restore_id is None or self._restore_id.startswith(OF_MANIFEST):
            return None
        return next((line for line in current.left if line.id == self._restore_id), None)

    def end_of(self, line: LeftLine) -> Manifest | None:
        """Its last checkpoint, None if it completed nothing. Raises NoSuchCheckpoint if that is not kept any more."""
        if line.folder is None:
            return None
        found = next((ref for ref in self.list() if ref.folder == line.folder), None)
        if found is None:
            raise NoSuchCheckpoint(
                f"the job is to go back to what it was before its last restore, {self._uri(line.folder)}, which is "
                f"deleted: it is kept for {WAY_BACK_SECONDS / 3600:.0f} hours. Name a savepoint in restoreFrom instead"
            )
        return self.load(found)

    def next_checkpoint_id(self) -> int:
        """An id that no driver of this job has used or will use again. Raises NoIdsLeft until `reserve_ids` is done."""
        with self._counting:
            if self._next_id >= self._ownership.current.reserved_until:
                why = f": {self._refusal}" if self._refusal else ""
                raise NoIdsLeft(f"storage has given out no new checkpoint ids since {self._next_id - 1}{why}")
            self._next_id += 1
            return self._next_id - 1

    @property
    def ids_run_out(self) -> bool:
        """Whether it is time for `reserve_ids`: many ids were used since a checkpoint has completed."""
        return self._next_id + _RESERVED_IDS // 2 > self._ownership.current.reserved_until

    def reserve_ids(self) -> None:
        try:
            self._update(lambda current: current)
        except (OSError, StorageError) as error:
            self._refusal = str(error)
            raise

    def release(self) -> None:
        """Give back the ids that were not used, when the driver ends in good order."""
        self._update(lambda current: replace(current, reserved_until=self._next_id))

    # Completing

    def complete(self, manifest: Manifest, retained: int, pinned: Collection[int] = ()) -> list[Retained]:
        """Make the checkpoint complete. Returns the ones it replaces, for `delete_checkpoint`.

        The newest `retained` ones are kept, those in `pinned`, and for a while the last one from before a restore. On
        OwnershipLost the driver must exit. On OSError the checkpoint is known not to be complete and may be aborted.
        An unknown outcome is resolved in here.
        """
        with self._completing:
            before = self._ownership.current
            _refuse_out_of_order(manifest, before)
            entry = self._write_manifest(manifest)
            with self._counting:
                if gone := self._shared.deleted_among(manifest.handles()):
                    raise StorageError(f"it refers to pieces that were deleted meanwhile: {', '.join(gone)}")
                event = _history_entry(manifest, entry.folder, self._shared.new_bytes(manifest))
                # Before the swap: from then on no other thread may delete what this manifest refers to.
                self._shared.retain(entry.folder, manifest.shared_paths())
            try:
                after = self._update(
                    lambda current: _with_checkpoint(current, entry, retained, pinned, self._restore_id), event
                )
            except BaseException:
                with self._counting:
                    self._shared.forget(entry.folder)
                raise
        kept = {ref.folder for ref in after.retained}
        return [ref for ref in before.retained if ref.folder not in kept]

    def complete_savepoint(self, manifest: Manifest, name: str) -> str:
        """Make a self-contained savepoint; returns its URI. It replaces nothing, and belongs to the user.

        Pieces that are not in its folder yet are copied there. The manifest comes last: without it there is no
        savepoint. Raises StorageError if the name is taken.
        """
        folder = layout.savepoint_folder(name)
        with self._completing:
            self._ownership.verify()
            path = self.where.absolute(layout.manifest_path(folder))
            taken = StorageError(f"there is a savepoint {name!r} already ({self._uri(folder)}): choose another name")
            if path in (each for each, _ in self.blobs.list(self.where.absolute(folder))):
                raise taken  # before anything is copied: its pieces may have the same names
            own = make_self_contained(self.blobs, self.where, manifest, name, self._options)
            try:
                self.blobs.write(path, [own.encode()], exclusive=True)
            except FileExistsError as error:
                raise taken from error
            self._update(lambda current: current, _history_entry(own, folder, own.size()))
        return self._uri(folder)

    def note_aborted(self, entry: Mapping[str, Any]) -> None:
        """Add an aborted checkpoint to the history; it is saved with the next swap."""
        self._unsaved_history.append(dict(entry))

    def note_restart(self, entry: Mapping[str, Any]) -> None:
        """Add a restart to what is remembered; it is saved with the next swap, at the latest by `release`."""
        self._unsaved_restarts.append(dict(entry))

    def history(self) -> Sequence[Mapping[str, Any]]:
        return [*super().history(), *self._unsaved_history][-_HISTORY:]

    # Deleting

    def delete_checkpoint(self, ref: Retained, pending: Collection[int] = (), references: Collection[str] = ()) -> None:
        """Delete a checkpoint that `complete` returned, with the shared pieces that nothing refers to any more.

        `pending`: the checkpoints under way; `references`: the shared paths that their acknowledgements name. A subtask
        may take its snapshot before it learns of a completion, so a shared piece stays until all checkpoints that were
        pending when it was given up are settled.
        """
        if any(entry.folder == ref.folder for entry in self._ownership.current.retained):
            raise ValueError(f"checkpoint {ref.checkpoint} is retained")
        self._learn_references([*self._ownership.current.retained, ref])
        with self._counting:
            self._shared.give_up(ref.folder, self._next_id)
            doomed = self._shared.take_doomed(pending, references)
        self._delete([layout.manifest_path(ref.folder)])
        self._delete_below(ref.folder)
        self._delete(doomed)

    def discard(
        self, handles: Iterable[PieceHandle], *, checkpoint: int | None = None, references: Collection[str] = ()
    ) -> None:
        """Delete what an aborted checkpoint wrote; of shared pieces only those that nothing else refers to.

        With `checkpoint`, everything in its folder goes, also what subtasks wrote that never acknowledged.
        """
        self._learn_references(self._ownership.current.retained)
        with self._counting:
            paths = self._shared.discardable(handles, references)
        self._delete(paths)
        if checkpoint is not None:
            self._delete_below(layout.checkpoint_folder(checkpoint, self.generation))

    def deleted_among(self, handles: Iterable[PieceHandle]) -> Sequence[str]:
        """Shared pieces that this driver has deleted: an acknowledgement that names one must be declined."""
        return self._shared.deleted_among(handles)

    def delete_savepoint(self, name: str) -> None:
        folder = layout.savepoint_folder(name)
        self._delete([layout.manifest_path(folder)])
        self._delete_below(folder)

    def delete_all_but_savepoints(self, job_uid: str) -> None:
        """For a job that is no more. Another job's state, which may lie there by now, is left alone."""
        current = self._ownership.read()
        if current is None or current.job_uid != job_uid:
            return
        listed = [self.where.relative(path) for path, _ in self.blobs.list(self.where.job_folder)]
        # First the record of what counts, the version that holds (the highest) last of it: whenever this is cut short,
        # either all that it names is there, or it is gone.
        for path in sorted(filter(layout.is_of_current, listed), key=lambda path: (len(path), path)):
            self._delete([path])
        self._delete(path for path in listed if layout.parse_savepoint_folder(path) is None)

    def sweep(self, min_age: float = 3600.0, pending: Collection[int] = (), references: Collection[str] = ()) -> int:
        """Delete what crashes and older drivers left behind; returns how many files. Raises OwnershipLost.

        A file is an orphan if no retained manifest, pending checkpoint or complete savepoint can refer to it and it is
        older than `min_age` seconds, by the store's clock.
        """
        self._ownership.verify()
        listing = [(self.where.relative(path), at) for path, at in self.blobs.list(self.where.job_folder)]
        self._learn_references(self._ownership.current.retained)
        with self._counting:
            listed_as_shared = [path for path, _ in listing if layout.parse_shared_generation(path) is not None]
            orphans = find_orphans(
                listing,
                before=self._clock() - min_age,
                generation=self.generation,
                retained={ref.folder for ref in self._ownership.current.retained},
                referenced=self._shared.referenced_among(listed_as_shared) | set(references),
                pending=set(pending),
            )
        self._delete(orphans)
        return len(orphans)

    # How it is done

    def _update(self, change: Callable[[Current], Current], event: Mapping[str, Any] | None = None) -> Current:
        """Swap in the change, with new ids and what the history has gained."""
        with self._saving:  # what one thread saves, another must not save again
            return self._save(change, event)

    def _save(self, change: Callable[[Current], Current], event: Mapping[str, Any] | None) -> Current:
        unsaved, restarts = [*self._unsaved_history], [*self._unsaved_restarts]

        def full(current: Current) -> Current:
            reserved = max(current.reserved_until, self._next_id + _RESERVED_IDS)
            changed = change(replace(current, reserved_until=reserved))
            changed = changed.with_restarts(restarts, _HISTORY)
            return changed.with_history([*unsaved, *([event] if event else [])], _HISTORY)

        current = self._ownership.update(full)
        del self._unsaved_history[: len(unsaved)]
        del self._unsaved_restarts[: len(restarts)]
        return current

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

    def _learn_references(self, manifests: Iterable[Retained]) -> None:
        """A new driver reads its predecessor's manifests once."""
        for ref in manifests:
            if not self._shared.knows(ref.folder):
                try:
                    paths = self._load_retained(ref).shared_paths()
                except StorageError:
                    paths = None
                with self._counting:
                    self._shared.retain(ref.folder, paths)

    def _delete(self, paths: Iterable[str]) -> None:
        self.blobs.delete([self.where.absolute(path) for path in paths])

    def _delete_below(self, folder: str) -> None:
        self.blobs.delete([path for path, _ in self.blobs.list(self.where.absolute(folder))])


def _refuse_out_of_order(manifest: Manifest, current: Current) -> None:
    if manifest.generation != current.generation:
        raise ValueError(f"a manifest of generation {manifest.generation} in a driver of {current.generation}")
    if current.retained and manifest.checkpoint <= current.retained[-1].checkpoint:
        raise ValueError(f"checkpoint {manifest.checkpoint} after {current.retained[-1].checkpoint}")


def _with_checkpoint(
    current: Current, entry: Retained, retained: int, pinned: Collection[int], restore_id: str | None
) -> Current:
    others = [ref for ref in current.retained if ref.folder != entry.folder]
    keep = {ref.folder for ref in others[len(others) + 1 - max(retained, 1) :]}
    keep |= {ref.folder for ref in others if ref.checkpoint in pinned}
    left = _left_lines(current, others, entry.completed_at, restore_id)
    recent = (line for line in left[-_WAYS_BACK:] if entry.completed_at - line.left_at < WAY_BACK_SECONDS)
    keep |= {line.folder for line in recent if line.folder is not None}
    kept = (*(ref for ref in others if ref.folder in keep), entry)
    return replace(current, retained=kept, restore_id=restore_id or current.restore_id, left=left)


def _left_lines(
    current: Current, completed: Sequence[Retained], now: float, restore_id: str | None
) -> tuple[LeftLine, ...]:
    """With the one that the first checkpoint of another restore leaves; without the one that it goes on with."""
    if restore_id in (None, current.line):
        return current.left
    left = LeftLine(current.line, completed[-1].folder if completed else None, now)
    return (*(line for line in current.left if line.id not in (left.id, restore_id)), left)[-_LEFT_LINES:]


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
