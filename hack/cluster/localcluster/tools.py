"""Programs that some tests want beside a cluster, provided on request. What is on the PATH is taken as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from localcluster import debian_packages, preflight, programs
from localcluster.errors import ClusterError
from localcluster.locks import one_at_a_time
from localcluster.settings import Paths

HELM_MODULE = "helm.sh/helm/v3/cmd/helm"
HELM_VERSION = "v3.21.4"

PROMETHEUS_PACKAGES = debian_packages.PackageSet("prometheus", ("prometheus",), ("prometheus", "promtool"))
"""Debian's has no discovery of Kubernetes; files and static targets will do."""

Say = Callable[[str], None]


def build_kubectl(paths: Paths, say: Say) -> None:
    programs.require_space(paths)
    programs.provide(paths, say)


def build_helm(paths: Paths, say: Say) -> None:
    preflight.require_space(paths.cache, preflight.SPACE_FOR_HELM)
    with one_at_a_time(paths.cache / "helm-lock", say):
        say(f"building helm {HELM_VERSION}: some 2 processor-minutes, once")
        programs.install(paths, HELM_MODULE, HELM_VERSION)


def unpack_prometheus(paths: Paths, say: Say) -> None:
    say("downloading Debian's prometheus")
    debian_packages.provide(paths, PROMETHEUS_PACKAGES)


PROVIDERS: dict[str, Callable[[Paths, Say], None]] = {
    "kubectl": build_kubectl,
    "helm": build_helm,
    "prometheus": unpack_prometheus,
    "promtool": unpack_prometheus,
}


def provide(name: str, paths: Paths, say: Say) -> Path:
    """Where that program is, once it is there."""
    if name not in PROVIDERS:
        raise ClusterError(f"no tool is called {name!r}", f"There are {', '.join(PROVIDERS)}.")
    if debian_packages.find_program(paths, name) is None:
        PROVIDERS[name](paths, say)
    return Path(debian_packages.find_program(paths, name) or name)
