"""Images as folders in the OCI layout: written for single static programs, read for loading into nodes."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from localcluster.whole_files import write_whole

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
LAYOUT_VERSION = json.dumps({"imageLayoutVersion": "1.0.0"})


NAME = "org.opencontainers.image.ref.name"


@dataclass(frozen=True)
class OciLayout:
    """Images by their names; those that have a layer in common share it."""

    folder: Path

    @property
    def index(self) -> Path:
        return self.folder / "index.json"

    def images(self) -> dict[str, str]:
        """The name of each image, and the digest of its manifest."""
        return {each["annotations"][NAME]: each["digest"] for each in self.descriptors()}

    def descriptors(self) -> list[dict[str, Any]]:
        if not self.index.exists():
            return []
        found: list[dict[str, Any]] = json.loads(self.index.read_text())["manifests"]
        return found

    def digests(self, manifest_digest: str) -> list[str]:
        """Of all the blobs that make an image, its manifest first."""
        manifest = json.loads(self.blob(manifest_digest).read_text())
        return [manifest_digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]

    def blob(self, digest: str) -> Path:
        algorithm, _, value = digest.partition(":")
        return self.folder / "blobs" / algorithm / value

    def add(self, content: bytes, media_type: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blob = self.blob(digest)
        blob.parent.mkdir(parents=True, exist_ok=True)
        write_whole(blob, content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def name_manifest(self, name: str, descriptor: dict[str, Any]) -> None:
        """Makes it the image of that name, in the place of one that had it."""
        others = [each for each in self.descriptors() if each["annotations"][NAME] != name]
        (self.folder / "oci-layout").write_text(LAYOUT_VERSION)
        write_whole(self.index, index_of([*others, {**descriptor, "annotations": {NAME: name}}]).encode())

    def remove_unused_blobs(self) -> None:
        used = {digest for manifest in self.images().values() for digest in self.digests(manifest)}
        for blob in (self.folder / "blobs" / "sha256").iterdir():
            if f"sha256:{blob.name}" not in used:
                blob.unlink(missing_ok=True)

    def write_archive(self, output: IO[bytes], name: str, known: set[str]) -> None:
        """One image as a tar for containerd's import, without the blobs that it has already."""
        descriptor = next(each for each in self.descriptors() if each["annotations"][NAME] == name)
        index = index_of([{**descriptor, "annotations": {"io.containerd.image.name": name}}])
        with tarfile.open(fileobj=output, mode="w|") as archive:
            add_file(archive, "oci-layout", LAYOUT_VERSION.encode())
            add_file(archive, "index.json", index.encode())
            for digest in self.digests(descriptor["digest"]):
                if digest not in known:
                    archive.add(self.blob(digest), arcname=f"blobs/{digest.replace(':', '/')}")


def index_of(descriptors: list[dict[str, Any]]) -> str:
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": descriptors})


def add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))


def write_program_image(layout: OciLayout, name: str, program: Path) -> None:
    """An image with one static program in it and nothing else."""
    layer = layout.add(single_file_layer(program), LAYER_TYPE)
    config = {
        "architecture": architecture(),
        "os": "linux",
        "config": {"Entrypoint": [f"/{program.name}"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": layout.add(json.dumps(config).encode(), CONFIG_TYPE),
        "layers": [layer],
    }
    layout.name_manifest(name, layout.add(json.dumps(manifest).encode(), MANIFEST_TYPE))
    layout.remove_unused_blobs()


def single_file_layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        add_file(archive, program.name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
