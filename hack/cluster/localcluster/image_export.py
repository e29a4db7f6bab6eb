"""Taking an image out of buildah's storage into an OCI layout, layer by layer: what is there already stays.

`buildah push` would compress every layer again each time; a change of the code is some hundred kilobytes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localcluster.errors import ClusterError
from localcluster.oci_layout import CONFIG_TYPE, MANIFEST_TYPE, OciLayout

Storage = Callable[..., str]
"""Runs a verb of `containers-storage` and gives its output."""


def export_image(storage: Storage, image: str, layout: OciLayout) -> None:
    manifest_text = storage("get-image-data", image, "manifest")
    manifest = json.loads(manifest_text)
    layers = layers_by_digest(storage, image)
    for layer in manifest["layers"]:
        if not layout.blob(layer["digest"]).exists():
            export_layer(storage, layers[layer["digest"]], layout.blob(layer["digest"]))
    layout.add(storage("get-image-data", image, manifest["config"]["digest"]).encode(), CONFIG_TYPE)
    layout.name_manifest(image, layout.add(manifest_text.encode(), MANIFEST_TYPE))
    layout.remove_unused_blobs()


def layers_by_digest(storage: Storage, image: str) -> dict[str, str]:
    """The storage's id of each layer of the image, by what the manifest calls it."""
    layers: dict[str, dict[str, Any]] = {layer["id"]: layer for layer in json.loads(storage("layers", "-j"))}
    found: dict[str, str] = {}
    current: str | None = top_layer(storage, image)
    while current:
        found[layers[current]["diff-digest"]] = current
        current = layers[current].get("parent")
    return found


def top_layer(storage: Storage, image: str) -> str:
    for stored in json.loads(storage("images", "-j")):
        if image in stored.get("names", []):
            layer: str = stored["layer"]
            return layer
    raise ClusterError(f"buildah built {image}, and its storage does not have it", "See the log of the build.")


def export_layer(storage: Storage, layer: str, blob: Path) -> None:
    """Under another name until it is whole and what its name says."""
    blob.parent.mkdir(parents=True, exist_ok=True)
    part = blob.with_suffix(".part")
    storage("diff", "--uncompressed", "--file", str(part), layer)
    with part.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != blob.name:
        raise ClusterError(f"layer {layer} came out of buildah's storage as {digest}, not {blob.name}")
    shutil.move(part, blob)
