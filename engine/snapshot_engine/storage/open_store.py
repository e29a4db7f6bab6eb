"""From a URI to a blob store."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from snapshot_engine.storage.blobs import BlobStore
from snapshot_engine.storage.errors import StorageError
from snapshot_engine.wire.spec import OBJECT_STORES


def open_store(uri: str, options: Mapping[str, Any] | None = None) -> BlobStore:
    """The store at `uri`: a path or `file://`, `s3://` and other object stores, `memory://` in one process.

    `options` go to the object store's client (endpoint, region, credentials); what is not given comes from
    the usual environment variables such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL.
    """
    parts = urlsplit(uri)
    if parts.scheme in ("", "file"):
        from snapshot_engine.storage.local import LocalBlobs

        return LocalBlobs(unquote(parts.path) if parts.scheme else uri)
    if parts.scheme == "memory":
        from snapshot_engine.storage.memory import shared_memory_blobs

        return shared_memory_blobs(uri.rstrip("/"))
    if parts.scheme in OBJECT_STORES:
        from snapshot_engine.storage.object_store import ObjectStoreBlobs

        return ObjectStoreBlobs(uri.replace("s3a://", "s3://", 1), options)
    raise StorageError(
        f"checkpoint storage {uri!r} has the unknown scheme {parts.scheme!r}; known are a plain path, "
        "file://, s3://, gs://, az:// and memory:// (HDFS has no compare-and-swap: use another, or a mounted "
        "file system that has hard links)"
    )
