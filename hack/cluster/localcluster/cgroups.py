"""One cgroup per node, below one of the cluster's own; both kinds of cgroup file system."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from localcluster.errors import ClusterError
from localcluster.whole_files import write_whole

ROOT = Path("/sys/fs/cgroup")


def create(cluster: str, node: str, record: Path) -> None:
    """What the root of the hierarchy has to hand down for it is noted in `record`, for `take_back`."""
    note_delegation(record)
    for hierarchy in hierarchies():
        folder = hierarchy
        for part in (cluster, node):
            delegate_controllers(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
            copy_cpuset_from_parent(folder)
        delegate_controllers(folder)
        weigh(hierarchy / cluster)


def weigh(folder: Path) -> None:
    """All pods together weigh as much as one ordinary process by default: on a busy machine they would starve."""
    for name, weight in (("cpu.shares", "8192"), ("cpu.weight", "800")):
        if (folder / name).exists():
            (folder / name).write_text(weight)


def note_delegation(record: Path) -> None:
    """Only what is not handed down already, so that the host gets back what it had."""
    offered, given = ROOT / "cgroup.controllers", ROOT / "cgroup.subtree_control"
    if not record.exists() and offered.exists() and given.exists():
        withheld = set(offered.read_text().split()) - set(given.read_text().split())
        write_whole(record, " ".join(sorted(withheld)).encode())


def take_back(record: Path) -> None:
    """After the cluster's cgroups are gone. What others use by now cannot be taken back, and stays."""
    for controller in record.read_text().split() if record.exists() else []:
        with suppress(OSError):
            (ROOT / "cgroup.subtree_control").write_text(f"-{controller}")


def remove(*names: str) -> None:
    """The cluster's cgroup, or a node's below it; what was killed may still be leaving it."""
    for folder in existing(*names):
        remove_tree(folder, seconds=5)
        if folder.exists():
            raise ClusterError(f"the cgroup {folder} cannot be removed", f"It has processes: {processes_in(folder)}")


def processes_in(folder: Path) -> str:
    return " ".join(file.read_text().strip().replace("\n", " ") for file in folder.rglob("cgroup.procs")) or "none"


def existing(*names: str) -> list[Path]:
    folders = (hierarchy.joinpath(*names) for hierarchy in hierarchies())
    return [folder for folder in folders if folder.exists()]


def hierarchies() -> list[Path]:
    """One for cgroup v2; for v1 each controller's."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [folder for folder in sorted(ROOT.iterdir()) if folder.is_dir() and not folder.is_symlink()]


def copy_cpuset_from_parent(folder: Path) -> None:
    """In v1 a new cpuset is empty, and nothing can be put into an empty one."""
    for name in ("cpuset.cpus", "cpuset.mems"):
        file = folder / name
        if (folder.parent / name).exists() and file.exists() and not file.read_text().strip():
            file.write_text((folder.parent / name).read_text())


def delegate_controllers(folder: Path) -> None:
    """In v2 a child has the controllers that its parent hands down."""
    switch = folder / "cgroup.subtree_control"
    if not (ROOT / "cgroup.controllers").exists() or not switch.exists():
        return
    for controller in (folder / "cgroup.controllers").read_text().split():
        with suppress(OSError):
            switch.write_text(f"+{controller}")


def remove_tree(folder: Path, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while folder.exists() and time.monotonic() < deadline:
        for child in deepest_first(folder):
            with suppress(OSError):
                child.rmdir()
        if folder.exists():
            time.sleep(0.05)


def deepest_first(folder: Path) -> Iterator[Path]:
    for child in folder.iterdir():
        if child.is_dir():
            yield from deepest_first(child)
    yield folder
