"""JSON documents that carry their own format version and checksum.

The file is one JSON object, `{"version": 1, "checksum": "crc32:…", "<name>": {…}}`, for any tool to read. The
checksum covers the bytes of the inner object as they are written, so an altered byte is found even where it
still parses.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from snapshot_engine.storage.blobs import Buffer
from snapshot_engine.storage.errors import CorruptCheckpoint, UnknownVersion


def checksum(*buffers: Buffer) -> str:
    value = 0
    for buffer in buffers:
        value = zlib.crc32(buffer, value)
    return f"crc32:{value:08x}"


def encode(name: str, version: int, body: Mapping[str, Any]) -> bytes:
    inner = json.dumps(body, separators=(",", ":"), allow_nan=False).encode()
    return b'{"version":%d,"checksum":"%s","%s":%s}\n' % (
        version,
        checksum(inner).encode(),
        name.encode(),
        inner,
    )


def decode(name: str, known_version: int, data: bytes, path: str) -> dict[str, Any]:
    """The inner object, verified. Raises CorruptCheckpoint or UnknownVersion, naming `path`."""
    try:
        document = json.loads(data)
        version, expected = document["version"], document["checksum"]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptCheckpoint(path, f"a {name} document", f"{len(data)} bytes that are none ({error})") from error
    if not isinstance(version, int) or version > known_version:
        raise UnknownVersion(path, version, known_version)
    _, _, rest = data.partition(b',"%s":' % name.encode())
    found = checksum(rest.rstrip(b"\n")[:-1])
    if found != expected:
        raise CorruptCheckpoint(path, f"checksum {expected}", f"{found} over {len(data)} bytes")
    body: dict[str, Any] = document[name]
    return body
