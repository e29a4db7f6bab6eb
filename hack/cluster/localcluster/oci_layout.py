"""Images as folders in the OCI layout: written for single static programs, read for loading into nodes."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"


@dataclass(frozen=True)
class OciLayout:
    folder: Path

    @property
    def exists(self) -> bool:
        return (self.folder / "index.json").exists()

    @property
    def manifest_descriptor(self) -> dict[str, Any]:
        """One layout holds one image."""
        descriptor: dict[str, Any] = json.loads((self.folder / "index.json").read_text())["manifests"][0]
        return descriptor

    @property
    def digest(self) -> str:
        digest: str = self.manifest_descriptor["digest"]
        return digest

    def digests(self) -> list[str]:
        manifest = json.loads(self.blob(self.digest).read_text())
        return [self.digest, manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]

    def blob(self, digest: str) -> Path:
        algorithm, _, value = digest.partition(":")
        return self.folder / "blobs" / algorithm / value

    def add(self, content: bytes, media_type: str) -> dict[str, Any]:
        digest = f"sha256:{hashlib.sha256(content).hexdigest()}"
        blob = self.blob(digest)
        blob.parent.mkdir(parents=True, exist_ok=True)
        blob.write_bytes(content)
        return {"mediaType": media_type, "digest": digest, "size": len(content)}

    def name_manifest(self, descriptor: dict[str, Any]) -> None:
        """Makes it the image of this layout."""
        index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [descriptor]}
        (self.folder / "oci-layout").write_text(json.dumps({"imageLayoutVersion": "1.0.0"}))
        (self.folder / "index.json").write_text(json.dumps(index))

    def remove_unused_blobs(self) -> None:
        used = set(self.digests())
        for blob in (self.folder / "blobs" / "sha256").iterdir():
            if f"sha256:{blob.name}" not in used:
                blob.unlink()

    def write_archive(self, output: IO[bytes], name: str, known: set[str]) -> None:
        """A tar for containerd's import, without the blobs that it has already."""
        descriptor = {**self.manifest_descriptor, "annotations": {"io.containerd.image.name": name}}
        index = {"schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [descriptor]}
        with tarfile.open(fileobj=output, mode="w|") as archive:
            add_file(archive, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
            add_file(archive, "index.json", json.dumps(index).encode())
            for digest in self.digests():
                if digest not in known:
                    archive.add(self.blob(digest), arcname=f"blobs/{digest.replace(':', '/')}")


def add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    entry.mode = mode
    archive.addfile(entry, io.BytesIO(content))


def write_program_image(folder: Path, program: Path) -> OciLayout:
    """An image with one static program in it and nothing else."""
    layout = OciLayout(folder)
    shutil.rmtree(folder, ignore_errors=True)
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
    descriptor = layout.add(json.dumps(manifest).encode(), MANIFEST_TYPE)
    layout.name_manifest(descriptor)
    return layout


def single_file_layer(program: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        add_file(archive, program.name, program.read_bytes(), mode=0o755)
    return buffer.getvalue()


def architecture() -> str:
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
