"""Putting images into the nodes' containerd: only the layers that a node has not seen yet are sent."""

from __future__ import annotations

import subprocess
import tempfile

from localcluster.errors import ClusterError
from localcluster.node import Node
from localcluster.oci_layout import OciLayout, write_program_image
from localcluster.settings import COREDNS_IMAGE, PAUSE_IMAGE, PROJECT_IMAGE, Paths

FOLDERS = {PAUSE_IMAGE: "pause", COREDNS_IMAGE: "coredns", PROJECT_IMAGE: "streamingjob"}


def layout_of(paths: Paths, image: str) -> OciLayout:
    return OciLayout(paths.images / FOLDERS[image])


def provide_program_images(paths: Paths) -> None:
    """The two images that hold one program each, again whenever the program is newer."""
    for image in (PAUSE_IMAGE, COREDNS_IMAGE):
        layout, program = layout_of(paths, image), paths.programs / FOLDERS[image]
        index = layout.folder / "index.json"
        if not layout.exists or index.stat().st_mtime < program.stat().st_mtime:
            write_program_image(layout.folder, program)


def load_all(node: Node) -> None:
    for image in FOLDERS:
        layout = layout_of(node.settings.paths, image)
        if layout.exists:
            load(node, layout, image)


def load(node: Node, layout: OciLayout, image: str) -> bool:
    """False if the node has that very image already."""
    if loaded_digest(node, image) == layout.digest:
        return False
    known = set(node.ctr("content", "ls", "-q").split())
    with tempfile.TemporaryFile(dir=node.settings.paths.cache) as archive:
        layout.write_archive(archive, image, known)
        archive.seek(0)
        done = subprocess.run(
            [*node.entrance(), "ctr", "--namespace", "k8s.io", "images", "import", "-"],
            stdin=archive,
            capture_output=True,
            text=True,
            env=node.env,
            check=False,
        )
    if done.returncode:
        raise ClusterError(f"{image} cannot be loaded into {node.name}:\n{done.stdout}{done.stderr}")
    return True


def loaded_digest(node: Node, image: str) -> str | None:
    for line in node.ctr("images", "ls", f"name=={image}").splitlines()[1:]:
        return next((word for word in line.split() if word.startswith("sha256:")), None)
    return None
