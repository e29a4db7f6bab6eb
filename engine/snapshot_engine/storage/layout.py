"""Where everything lies in checkpoint storage. No other place formats or takes apart a path.

    <root>/<namespace>/<job>/ current.json                                 who owns the job, which manifests
      are retained checkpoints/<n>-<generation>/manifest.json
      checkpoints/<n>-<generation>/<vertex>/<subtask>-<attempt>-<counter>-<name>.arrow
      shared/<generation>-<unique name>            incremental pieces and exchange segments, counted by
      reference savepoints/<name>/manifest.json              self-contained: paths inside are relative to this
      folder savepoints/<name>/pieces/…

All functions but `absolute` return paths relative to the job's folder, which is what handles contain.
"""

from __future__ import annotations

import re
import string
import zlib
from dataclasses import dataclass

from snapshot_engine.protocol.elements import Attempt

_CHECKPOINT_FOLDER = re.compile(r"^checkpoints/(\d+)-(\d+)(?:/|$)")
_SHARED = re.compile(r"^shared/(\d+)-")
_SAVEPOINT_FOLDER = re.compile(r"^savepoints/([^/]+)(?:/|$)")
_LONGEST_COMPONENT = 80
_SAFE = frozenset(string.ascii_letters + string.digits + "_.-")

CHECKPOINTS = "checkpoints"
SHARED = "shared"
SAVEPOINTS = "savepoints"
MANIFEST = "manifest.json"


def component(name: str) -> str:
    """`name` as one part of a path or URI, whatever is in it; different names give different parts."""
    quoted = "".join(chr(byte) if chr(byte) in _SAFE else f"~{byte:02x}" for byte in name.encode())
    if not quoted.strip("."):
        quoted = quoted.replace(".", "~2e") or "~"
    if len(quoted) <= _LONGEST_COMPONENT:
        return quoted
    return f"{quoted[: _LONGEST_COMPONENT - 9]}-{zlib.crc32(name.encode()):08x}"


@dataclass(frozen=True, slots=True)
class Layout:
    namespace: str
    job: str

    @property
    def job_folder(self) -> str:
        return f"{component(self.namespace)}/{component(self.job)}"

    def absolute(self, path: str) -> str:
        """`path` as the blob store wants it."""
        return f"{self.job_folder}/{path}"

    def relative(self, path: str) -> str:
        """The inverse of `absolute`, for what a listing returned."""
        return path.removeprefix(f"{self.job_folder}/")

    @property
    def current(self) -> str:
        return self.absolute("current.json")


def checkpoint_folder(checkpoint: int, generation: int) -> str:
    return f"{CHECKPOINTS}/{checkpoint}-{generation}"


def source_folder(uid: str) -> str:
    """Where the rows of a source lie that only the driver has."""
    return f"sources/{component(uid)}"


def savepoint_folder(name: str) -> str:
    return f"{SAVEPOINTS}/{component(name)}"


def manifest_path(folder: str) -> str:
    return f"{folder}/{MANIFEST}"


def piece_path(folder: str, vertex: str, subtask: int, attempt: Attempt, counter: int, name: str, suffix: str) -> str:
    return f"{folder}/{component(vertex)}/{subtask}-{attempt}-{counter}-{component(name)}{suffix}"


def shared_path(
    checkpoint: int,
    vertex: str,
    subtask: int,
    attempt: Attempt,
    counter: int,
    name: str,
    suffix: str,
    nonce: str,
) -> str:
    """Begins with the generation, so that orphans of older drivers can be told from a listing alone."""
    who = f"{component(vertex)}-{subtask}-{attempt.number}"
    return f"{SHARED}/{attempt.generation}-{who}-{checkpoint}-{counter}-{component(name)}-{nonce}{suffix}"


def savepoint_copy_path(folder: str, counter: int, path: str) -> str:
    """Where a savepoint keeps its own copy of the piece at `path`."""
    return f"{folder}/pieces/{counter}-{path.rsplit('/', 1)[-1]}"


def parse_checkpoint_folder(path: str) -> tuple[int, int] | None:
    """(checkpoint, generation) of anything below a checkpoint's folder."""
    match = _CHECKPOINT_FOLDER.match(path)
    return (int(match[1]), int(match[2])) if match else None


def parse_shared_generation(path: str) -> int | None:
    match = _SHARED.match(path)
    return int(match[1]) if match else None


def is_of_current(path: str) -> bool:
    """Whether `path` is `current.json` or, where a store keeps its versions, one of them."""
    return path == "current.json" or path.startswith("current/")


def parse_savepoint_folder(path: str) -> str | None:
    """The folder of the savepoint that `path` lies in."""
    match = _SAVEPOINT_FOLDER.match(path)
    return f"{SAVEPOINTS}/{match[1]}" if match else None
