"""What can go wrong with checkpoint storage, said to the person who must act."""

from __future__ import annotations

from collections.abc import Sequence


class StorageError(Exception):
    """Any trouble with checkpoint storage that is not a plain I/O error."""


class UnusableStorage(StorageError):
    """Nothing can be written there."""

    def __init__(self, uri: str, error: OSError) -> None:
        super().__init__(
            f"checkpoint storage {uri} cannot be used: {str(error).rstrip('.?')}. "
            "Expected a place that the driver and the executors may read and write"
        )


class OwnershipLost(StorageError):
    """Another driver has taken the job over: this one must exit, committing and deleting nothing more."""

    def __init__(self, mine: int, found: int, where: str) -> None:
        self.mine = mine
        self.found = found
        super().__init__(
            f"this driver has generation {mine}, but {where} now names generation {found}: another driver "
            "has taken the job over. This driver must exit; nothing needs to be done "
            "unless both keep being started"
        )


class BelongsToAnotherJob(StorageError):
    """The storage holds the state of another job of the same name."""

    def __init__(self, where: str, found: str, expected: str, checkpoints: Sequence[int]) -> None:
        """`checkpoints`: the completed ones there, oldest first."""
        there = ", ".join(map(str, checkpoints)) or "none; it may have savepoints"
        take_over = (
            f'write restoreFrom: "{checkpoints[-1]}" to take this state over'
            if checkpoints
            else "name one of its savepoints in restoreFrom"
        )
        super().__init__(
            f"{where} belongs to the job with uid {found}, not to this one ({expected}). Give this job "
            f"another name or storage location, or {take_over} (checkpoints there: {there})"
        )


class StorageUnavailable(StorageError):
    """The store did not answer for so long that it is not known what it holds."""


class CorruptCheckpoint(StorageError):
    """A file of a checkpoint is missing, truncated or altered."""

    advice = (
        "Restore from another checkpoint or savepoint by naming it; an older one than the latest repeats output that "
        "is already committed"
    )

    def __init__(self, path: str, expected: str, found: str) -> None:
        self.path = path
        self.expected = expected
        self.found = found
        super().__init__(f"{path} is corrupt: expected {expected}, found {found}. {self.advice}")


class CorruptRecord(CorruptCheckpoint):
    """`current.json` is truncated or altered: it is not known which checkpoints count."""

    advice = (
        "It says which checkpoints count, so nothing can be restored by name before it is whole. Stop every driver of "
        "this job and bring back the version before: in a folder, move this file away, and the one before it counts; "
        "in a bucket with versions, restore the object's last one. The job then goes on from the latest checkpoint "
        "that is named there, and output since is written again. Without such a version, give the job another "
        "storage.uri and restore a savepoint's or checkpoint's folder of this one by its path or URI"
    )


class UnknownVersion(StorageError):
    """A document was written by a newer release than this one."""

    def __init__(self, path: str, found: object, known: int) -> None:
        super().__init__(
            f"{path} has format version {found}, but this release knows versions up to {known}: "
            "it was written by a newer release; run that release, or restore from a savepoint of an older one"
        )


class NoIdsLeft(StorageError):
    """No id for a checkpoint is left until storage has answered."""


class NoSuchCheckpoint(StorageError):
    """The checkpoint or savepoint that was asked for is not there."""


class LostCheckpoints(StorageError):
    """The storage holds no completed checkpoint of a job that has completed some."""

    def __init__(self, where: str, expected: str) -> None:
        super().__init__(
            f"{where} holds no completed checkpoint, but this job has completed some, such as {expected}; a start "
            "without state would lose what the job knows and repeat its output. See that it is the storage that the "
            "job had (bucket, endpoint, credentials, volume), put the state back, and change restartNonce; or name a "
            "savepoint in restoreFrom and change restoreNonce; or change the spec with upgradeMode: Stateless to "
            "begin with no state"
        )


class StateTooLarge(StorageError):
    """The `memory` backend was asked to carry more than it may."""
