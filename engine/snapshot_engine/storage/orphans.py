"""Which files in a job's folder nobody needs any more: a pure function of the listing and of what counts."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from snapshot_engine.storage import layout


def find_orphans(
    listing: Iterable[tuple[str, float]],
    *,
    before: float,
    generation: int,
    retained: Collection[str],
    referenced: Collection[str],
    pending: Collection[int],
) -> list[str]:
    """The files that may be deleted, of those last changed earlier than `before`.

    - In a checkpoint's folder: if it is not retained, and not a pending one of this generation.
    - Shared: if it is not referenced. Older generations can never refer to it again; for one's own, `before`
      must lie further back than an upload can be away from its acknowledgement.
    - In a savepoint's folder: if the savepoint has no manifest, since whoever was making it is gone.
    - Anything of a newer generation is left alone, and so is what this release does not know.
    """
    files = list(listing)
    names = {path for path, _ in files}

    def is_orphan(path: str) -> bool:
        checkpoint = layout.parse_checkpoint_folder(path)
        if checkpoint is not None:
            number, owner = checkpoint
            if layout.checkpoint_folder(number, owner) in retained or owner > generation:
                return False
            return owner < generation or number not in pending
        owner_of_shared = layout.parse_shared_generation(path)
        if owner_of_shared is not None:
            return owner_of_shared <= generation and path not in referenced
        savepoint = layout.parse_savepoint_folder(path)
        if savepoint is not None:
            return layout.manifest_path(savepoint) not in names
        return path.startswith(f"{layout.SHARED}/") and path.endswith(".partial")

    return [path for path, modified in files if modified < before and is_orphan(path)]
