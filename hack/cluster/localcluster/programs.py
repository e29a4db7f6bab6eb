"""The Kubernetes programs, etcd, CoreDNS and pause, built from their Go modules (see ../programs/go.mod)."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

from localcluster import preflight
from localcluster.commands import run, run_logged
from localcluster.errors import ClusterError
from localcluster.locks import one_at_a_time
from localcluster.settings import KUBERNETES_VERSION, REPOSITORY, Paths

SOURCES = REPOSITORY / "hack" / "cluster" / "programs"
NAMES_OF_KUBERNETES = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
    "kubectl",
)
GO_OUTSIDE_THE_PATH = "/usr/local/go/bin"
"""Where its own installer puts it; sudo's PATH leaves that out."""
BUILT = ("kubernetes", "etcd", "coredns", "pause")


def provide(paths: Paths, say: Callable[[str], None]) -> None:
    """Builds what is missing or was built from other sources."""
    if are_built(paths):
        return
    go = require_go()
    with one_at_a_time(paths.cache / "programs-lock", say):
        if not are_built(paths):
            say(f"building Kubernetes {KUBERNETES_VERSION}, etcd and CoreDNS: 10 to 20 processor-minutes, once")
            build(paths, go)
            stamp_of(paths).write_text(sources_digest())


def are_built(paths: Paths) -> bool:
    stamp = stamp_of(paths)
    current = stamp.exists() and stamp.read_text() == sources_digest()
    return current and all((paths.programs / name).exists() for name in BUILT)


def require_space(paths: Paths) -> None:
    """Room for a cluster or an API server, and for building them if they are not built."""
    needed = preflight.SPACE_TO_RUN if are_built(paths) else preflight.SPACE_TO_BUILD
    preflight.require_space(paths.cache, needed)


def stamp_of(paths: Paths) -> Path:
    return paths.programs / "built-from"


def sources_digest() -> str:
    digest = hashlib.sha256(KUBERNETES_VERSION.encode())
    for file in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def require_go() -> str:
    """Any Go that knows how to fetch the toolchain that go.mod asks for (1.21 and later)."""
    go = shutil.which("go") or shutil.which("go", path=GO_OUTSIDE_THE_PATH)
    wanted = wanted_go()
    if go is None:
        raise ClusterError(
            "no Go found: the Kubernetes programs are built from their Go modules",
            f"Install Go {wanted} or newer (https://go.dev/dl) and put it on the PATH.",
        )
    found = tuple(int(part) for part in re.findall(r"\d+", go_version(go))[:2])
    if found < (1, 21):
        raise ClusterError(f"{go_version(go)} is too old", f"Install Go {wanted} or newer (https://go.dev/dl).")
    return go


def wanted_go() -> str:
    found = re.search(r"^go (\S+)", (SOURCES / "go.mod").read_text(), re.MULTILINE)
    return found[1] if found else ""


def go_version(go: str) -> str:
    return run([go, "env", "GOVERSION"], cwd=Path("/")).strip()


def build(paths: Paths, go: str) -> None:
    command = ["nice", go, "build", *build_flags(), "-o", f"{paths.programs}/", "./..."]
    paths.programs.mkdir(parents=True, exist_ok=True)
    env = with_temporary_folder(build_environment(paths), "kubernetes")
    run_logged(command, paths.cache / "logs" / "go-build.log", cwd=SOURCES, env=env)
    for name in NAMES_OF_KUBERNETES:
        link = paths.programs / name
        link.unlink(missing_ok=True)
        link.symlink_to("kubernetes")


def install(paths: Paths, module: str, version: str) -> None:
    """A program of another module, by that module's own versions of everything."""
    name = module.rpartition("/")[2]
    env = {**with_temporary_folder(build_environment(paths), name), "GOBIN": str(paths.programs)}
    log = paths.cache / "logs" / f"go-install-{name}.log"
    run_logged(["nice", require_go(), "install", *build_flags(), f"{module}@{version}"], log, env=env)


def build_flags() -> list[str]:
    linker = f"-s -w -X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION}"
    return ["-trimpath", "-buildvcs=false", "-modcacherw", "-ldflags", linker]


def build_environment(paths: Paths) -> dict[str, str]:
    go = paths.cache / "go"
    folders = {"GOPATH": go, "GOMODCACHE": go / "modules", "GOCACHE": go / "build"}
    return {**os.environ, "CGO_ENABLED": "0", **{name: str(folder) for name, folder in folders.items()}}


def with_temporary_folder(env: dict[str, str], name: str) -> dict[str, str]:
    """Empty of what a killed build left; and on the disk of the programs, so that go moves them to their place at once.
    Of one that was copied there in part it would say that it need not be built."""
    folder = Path(env["GOPATH"]) / f"tmp-{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return {**env, "GOTMPDIR": str(folder)}
