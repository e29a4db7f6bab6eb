"""Which cluster the tests run against: the one that KUBECONFIG names, a kind or minikube context, or our own."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from localcluster import preflight, proxies
from localcluster.cluster import LocalCluster
from localcluster.errors import ClusterError
from localcluster.settings import Settings
from localcluster.testing.kubectl import Kubectl, find_kubectl


@dataclass(frozen=True)
class ChosenCluster:
    kubectl: Kubectl
    local: LocalCluster | None
    """None for a cluster that is not ours: it cannot lose a node on request."""

    @property
    def kubeconfig(self) -> Path:
        """A file, for clients that want one."""
        default = os.environ.get("KUBECONFIG", "~/.kube/config").split(os.pathsep)[0]
        return self.kubectl.kubeconfig or Path(default).expanduser()

    @property
    def shared_folders(self) -> Path | None:
        return self.local.settings.paths.volumes if self.local else None

    def image(self) -> str:
        """The project's image, current: built and loaded here, and elsewhere what STREAMINGJOB_IMAGE names."""
        if given := os.environ.get("STREAMINGJOB_IMAGE"):
            return given
        if self.local and os.environ.get("STREAMINGJOB_CLUSTER_KEEP_IMAGE") != "1":
            self.local.build_image()
        return self.local.settings.image if self.local else Settings.from_environment().image


@contextmanager
def chosen_cluster(settings: Settings, say: Callable[[str], None]) -> Iterator[ChosenCluster]:
    if given := given_cluster(settings):
        require_answer(given)
        yield ChosenCluster(given, None)
        return
    preflight.require_root()
    proxies.reach_directly(settings.network)
    local = LocalCluster(settings, say)
    with local_cluster(local):
        yield ChosenCluster(Kubectl(find_kubectl(settings.paths), settings.paths.kubeconfig), local)


def given_cluster(settings: Settings) -> Kubectl | None:
    """The cluster that somebody else has chosen; None if nobody has, or if it is our own.

    Our own is like anybody's for a user who is not root: it can be used, and no more.
    """
    named = os.environ.get("KUBECONFIG", "")
    if named and Path(named).resolve() == settings.paths.kubeconfig and os.geteuid() == 0:
        return None
    if os.pathsep in named:
        return Kubectl(find_kubectl(settings.paths), None)  # it reads the whole list itself
    if named:
        return Kubectl(find_kubectl(settings.paths), Path(named).resolve())
    if development_context(current_context()):
        return Kubectl(find_kubectl(settings.paths), None)
    return None


def current_context() -> str:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        return ""
    command = [kubectl, "config", "current-context"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def development_context(context: str) -> bool:
    """Only contexts whose name says that they are for this; a production context is never taken unasked."""
    return context.startswith("kind-") or context == "minikube"


def require_answer(kubectl: Kubectl) -> None:
    try:
        kubectl("get", "--raw", "/readyz", "--request-timeout=10s")
    except ClusterError as error:
        named = kubectl.kubeconfig or "the current context"
        raise ClusterError(
            f"the cluster of {named} does not answer.\n{error}",
            "Start it, or unset KUBECONFIG to have the tests bring up their own.",
        ) from None


@contextmanager
def local_cluster(cluster: LocalCluster) -> Iterator[None]:
    """Our own, brought up if need be; whoever uses it last takes it down if tests brought it up."""
    cache = cluster.settings.paths.cache
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "users").open("a") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        if cluster.is_up():
            cluster.provide_volumes()
        else:
            cluster.up(for_tests=True)
        try:
            yield
        finally:
            if is_last_user(users):
                cluster.down(only_if_started_by_tests=True)


def is_last_user(users: IO[str]) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
