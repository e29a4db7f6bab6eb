"""Blobs in an object store, through obstore: S3 and what speaks its protocol, Google Cloud Storage, Azure.

**The primitive for `swap` is the conditional put**: `If-None-Match: *` for the first version, `If-Match:
<etag>` for every other. The store compares and replaces in one step, so a driver that was stopped for any
length of time finds its ETag outdated. A put that was answered neither with success nor with a refusal may
still have taken place (and its repetition inside the client may have been refused because of that), so
everything else is OutcomeUnknown, and whoever gets a conflict must read back and compare the content as well.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from snapshot_engine.storage.blobs import Buffer, OutcomeUnknown, SwapConflict
from snapshot_engine.storage.errors import StorageError

try:
    import obstore
    from obstore import exceptions as refusal
except ImportError as error:  # pragma: no cover - the extra is not installed
    raise StorageError(
        "object stores need the package obstore: pip install 'streamingjob[s3]' "
        "(also in the image of driver and executors)"
    ) from error


class ObjectStoreBlobs:
    def __init__(self, uri: str, options: Mapping[str, Any] | None = None, store: Any = None) -> None:
        self.uri = uri.rstrip("/")
        self._store = store if store is not None else obstore.store.from_url(self.uri, **dict(options or {}))

    def write(self, path: str, buffers: Iterable[Buffer], *, exclusive: bool = False) -> int:
        if exclusive:
            return self._create(path, b"".join(buffers))
        counted = _Counted(buffers)
        try:
            obstore.put(self._store, path, iter(counted))
        except refusal.BaseError as error:
            raise _os_error(error, f"{self.uri}/{path} could not be written") from error
        return counted.size

    def read(self, path: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, path).bytes())
        except FileNotFoundError:
            raise
        except refusal.BaseError as error:
            raise _os_error(error, f"{self.uri}/{path} could not be read") from error

    def read_versioned(self, path: str) -> tuple[bytes, str] | None:
        try:
            answer = obstore.get(self._store, path)
            return bytes(answer.bytes()), str(answer.meta["e_tag"])
        except FileNotFoundError:
            return None
        except refusal.BaseError as error:
            raise _os_error(error, f"{self.uri}/{path} could not be read") from error

    def whereabouts(self, path: str, version: str | None = None) -> str:
        return f"{self.uri}/{path}"

    def swap(self, path: str, data: bytes, expected: str | None) -> str:
        try:
            answer = obstore.put(self._store, path, data, mode="create" if expected is None else {"e_tag": expected})
        except (refusal.AlreadyExistsError, refusal.PreconditionError, FileNotFoundError) as error:
            raise SwapConflict(path) from error
        except (
            refusal.PermissionDeniedError,
            refusal.UnauthenticatedError,
            refusal.NotSupportedError,
        ) as error:
            raise _os_error(error, f"{self.uri}/{path} could not be swapped") from error
        except refusal.BaseError as error:
            raise OutcomeUnknown(f"{self.uri}/{path}: {error}") from error
        return str(answer["e_tag"])

    def list(self, prefix: str) -> Sequence[tuple[str, float]]:
        found = []
        try:
            for chunk in obstore.list(self._store, prefix.rstrip("/") + "/" if prefix else None):
                found += [(entry["path"], entry["last_modified"].timestamp()) for entry in chunk]
        except refusal.BaseError as error:
            raise _os_error(error, f"{self.uri}/{prefix} could not be listed") from error
        return sorted(found)

    def delete(self, paths: Iterable[str]) -> None:
        wanted = list(paths)
        if not wanted:
            return
        try:
            obstore.delete(self._store, wanted)
        except FileNotFoundError:
            self._delete_one_by_one(wanted)
        except refusal.BaseError as error:
            raise _os_error(error, f"{self.uri}: {len(wanted)} objects could not be deleted") from error

    def copy(self, source: str, target: str) -> None:
        try:
            obstore.copy(self._store, source, target)
        except FileNotFoundError:
            raise
        except refusal.BaseError as error:
            raise _os_error(error, f"{self.uri}/{source} could not be copied to {target}") from error

    def _create(self, path: str, data: bytes) -> int:
        try:
            obstore.put(self._store, path, data, mode="create")
        except refusal.AlreadyExistsError as error:
            # A repetition inside the client is refused because of its own first try.
            if self.read(path) != data:
                raise FileExistsError(f"{self.uri}/{path}") from error
        except refusal.BaseError as error:
            raise _os_error(error, f"{self.uri}/{path} could not be written") from error
        return len(data)

    def _delete_one_by_one(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                continue


def _os_error(error: Exception, what: str) -> OSError:
    """The first line of what the client says: the rest is its own innards."""
    said = f"{what}: {str(error).splitlines()[0]}"
    if isinstance(error, refusal.PermissionDeniedError | refusal.UnauthenticatedError):
        return PermissionError(errno.EACCES, said)
    return OSError(said)


class _Counted:
    def __init__(self, buffers: Iterable[Buffer]) -> None:
        self._buffers = buffers
        self.size = 0

    def __iter__(self) -> Iterator[Buffer]:
        for buffer in self._buffers:
            self.size += len(buffer)
            yield buffer
