"""Debian's programs in a folder of our own: downloaded by apt, unpacked beside the system, never installed.

apt names every package that the machine does not have yet, dependencies included. What the machine has is
used as it is, so whoever installs them properly needs nothing of this.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localcluster.commands import run, run_logged, succeeds
from localcluster.errors import ClusterError
from localcluster.locks import one_at_a_time
from localcluster.settings import Paths


@dataclass(frozen=True)
class PackageSet:
    """Packages, and the programs that prove their presence."""

    name: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]


NODE_PACKAGES = PackageSet(
    "node",
    ("containerd", "runc", "containernetworking-plugins", "iptables", "iproute2", "util-linux", "openssl"),
    ("containerd", "ctr", "runc", "iptables", "ip", "nsenter", "unshare", "openssl"),
)
IMAGE_PACKAGES = PackageSet(
    "image",
    ("buildah", "containers-storage", "runc", "debootstrap", "debian-archive-keyring"),
    ("buildah", "containers-storage", "runc", "debootstrap"),
)


def provide(paths: Paths, wanted: PackageSet) -> None:
    """Afterwards every program of the set is found by `search_path`."""
    if is_provided(paths, wanted):
        return
    require_apt(wanted)
    log = paths.cache / "logs" / f"debian-{wanted.name}.log"
    with one_at_a_time(paths.debian / "lock"):
        if not is_provided(paths, wanted):
            archives = download(paths, wanted, log)
            unfinished(paths, wanted).touch()
            unpack(archives, root(paths))
            choose_iptables(root(paths))
            unfinished(paths, wanted).unlink()
    if absent := missing(paths, wanted.programs):
        raise ClusterError(f"Debian's packages were unpacked but have no {', '.join(absent)}", f"See {log}")


def is_provided(paths: Paths, wanted: PackageSet) -> bool:
    return not missing(paths, wanted.programs) and not unfinished(paths, wanted).exists()


def unfinished(paths: Paths, wanted: PackageSet) -> Path:
    """There while the set is being unpacked: a program may be there before its libraries."""
    return paths.debian / f"unpacking-{wanted.name}"


def missing(paths: Paths, programs: Sequence[str]) -> list[str]:
    return [program for program in programs if not find_program(paths, program)]


def find_program(paths: Paths, program: str) -> str | None:
    return shutil.which(program, path=search_path(paths))


def require_apt(wanted: PackageSet) -> None:
    if shutil.which("apt-get") and shutil.which("dpkg-deb"):
        return
    raise ClusterError(
        f"{', '.join(wanted.programs)} are needed, some are missing, and there is no apt-get to fetch them",
        f"Install the equivalents of Debian's packages {' '.join(wanted.packages)}.",
    )


def download(paths: Paths, wanted: PackageSet, log: Path) -> list[Path]:
    """apt with folders of its own: the system's package lists and its archive cache stay as they are."""
    folder = paths.debian / f"archives-{wanted.name}"
    (folder / "partial").mkdir(parents=True, exist_ok=True)
    options = apt_options(paths, folder)
    try:
        run_logged(["apt-get", *options, "update"], log)
        run_logged(
            [
                "apt-get",
                *options,
                "install",
                "-y",
                "--no-install-recommends",
                "--download-only",
                *wanted.packages,
            ],
            log,
        )
    except ClusterError as error:
        raise ClusterError(
            f"Debian's packages {' '.join(wanted.packages)} cannot be downloaded.\n{error}",
            "Check that this machine's apt sources are reachable, or install them: "
            f"apt-get install {' '.join(wanted.packages)}",
        ) from None
    return sorted(folder.glob("*.deb"))


def apt_options(paths: Paths, archives: Path) -> list[str]:
    lists = paths.debian / "lists"
    (lists / "partial").mkdir(parents=True, exist_ok=True)
    settings = {
        "Dir::State::lists": lists,
        "Dir::Cache": paths.debian,
        "Dir::Cache::archives": archives,
        "APT::Sandbox::User": "root",  # the cache folder may be closed to apt's own user
    }
    return [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]


def unpack(archives: Sequence[Path], target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for archive in archives:
        run(["dpkg-deb", "--extract", archive, target])


def choose_iptables(unpacked: Path) -> None:
    """The links that installing iptables makes, to whichever of its two kinds this kernel has."""
    programs = unpacked / "usr" / "sbin"
    if not (programs / "xtables-nft-multi").exists():
        return
    kind = working_iptables(unpacked)
    for name in (
        "iptables",
        "iptables-save",
        "iptables-restore",
        "ip6tables",
        "ip6tables-save",
        "ip6tables-restore",
    ):
        link = programs / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"xtables-{kind}-multi")


def working_iptables(unpacked: Path) -> str:
    env = {
        **os.environ,
        "LD_LIBRARY_PATH": str(libraries(unpacked)),
        "XTABLES_LIBDIR": str(extensions(unpacked)),
    }
    probe = unpacked / "usr" / "sbin" / "xtables-nft-multi"
    return "nft" if succeeds([probe, "iptables", "-t", "nat", "-S"], env=env) else "legacy"


def root(paths: Paths) -> Path:
    return paths.debian / "root"


def libraries(unpacked: Path) -> Path:
    return unpacked / "usr" / "lib" / f"{platform.machine()}-linux-gnu"


def extensions(unpacked: Path) -> Path:
    return libraries(unpacked) / "xtables"


def search_path(paths: Paths) -> str:
    unpacked = root(paths)
    folders = [
        paths.programs,
        unpacked / "usr/sbin",
        unpacked / "usr/bin",
        unpacked / "sbin",
        unpacked / "bin",
    ]
    return ":".join([*map(str, folders), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


def environment(paths: Paths) -> dict[str, str]:
    """What a process needs to run the programs of this folder, and to find their libraries."""
    unpacked = root(paths)
    env = {**os.environ, "PATH": search_path(paths)}
    if unpacked.exists():
        env["LD_LIBRARY_PATH"] = f"{libraries(unpacked)}:{unpacked}/lib/{platform.machine()}-linux-gnu"
    if extensions(unpacked).exists():
        env["XTABLES_LIBDIR"] = str(extensions(unpacked))
    return env


def cni_plugins(paths: Paths) -> Path:
    for folder in (root(paths) / "usr/lib/cni", Path("/usr/lib/cni"), Path("/opt/cni/bin")):
        if (folder / "ptp").exists():
            return folder
    raise ClusterError("the CNI plugins are missing", "apt-get install containernetworking-plugins")
