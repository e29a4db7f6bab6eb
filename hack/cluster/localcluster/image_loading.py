"""Putting images into the nodes' containerd: only the layers that a node has not seen yet are sent."""

from __future__ import annotations

import tempfile

from localcluster.commands import run
from localcluster.node import Node
from localcluster.oci_layout import OciLayout, write_program_image
from localcluster.settings import COREDNS_IMAGE, PAUSE_IMAGE, Paths

SECONDS_TO_LOAD = 600
OF_ONE_PROGRAM = {PAUSE_IMAGE: "pause", COREDNS_IMAGE: "coredns"}


def project_layout(paths: Paths) -> OciLayout:
    return OciLayout(paths.images / "streamingjob")


def provide_program_images(paths: Paths) -> None:
    """Again whenever the program is newer."""
    for image, name in OF_ONE_PROGRAM.items():
        layout, program = OciLayout(paths.images / name), paths.programs / name
        if image not in layout.images() or layout.index.stat().st_mtime < program.stat().st_mtime:
            write_program_image(layout, image, program)


def load_all(node: Node) -> None:
    for folder in sorted(node.settings.paths.images.iterdir()):
        layout = OciLayout(folder)
        for image in layout.images():
            load(node, layout, image)


def load(node: Node, layout: OciLayout, image: str) -> None:
    """Nothing is done if the node has that very image already."""
    if loaded_digest(node, image) == layout.images()[image]:
        return
    known = set(node.ctr("content", "ls", "-q").split())
    with tempfile.TemporaryFile(dir=node.settings.paths.cache) as archive:
        layout.write_archive(archive, image, known)
        archive.seek(0)
        command = ["ctr", "--namespace", "k8s.io", "images", "import", "-"]
        run([*node.entrance(), *command], env=node.env, stdin=archive, timeout=SECONDS_TO_LOAD)


def loaded_digest(node: Node, image: str) -> str | None:
    for line in node.ctr("images", "ls", f"name=={image}").splitlines()[1:]:
        return next((word for word in line.split() if word.startswith("sha256:")), None)
    return None
