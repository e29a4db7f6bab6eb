"""The command line behind `make cluster`, `make cluster-down`, `make image` and `make api-server`."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from shlex import quote

from localcluster import preflight, proxies
from localcluster.api_server import FOLDER_PREFIX, api_server_in
from localcluster.cluster import LocalCluster
from localcluster.errors import ClusterError
from localcluster.settings import Settings
from localcluster.testing.chosen_cluster import given_cluster, require_answer
from localcluster.tools import PROVIDERS

STARTED = time.monotonic()


def say(message: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.1f} s] {message}", flush=True)


def up(cluster: LocalCluster, arguments: argparse.Namespace) -> None:
    if given := given_cluster(cluster.settings):
        require_answer(given)
        say(f"{given.kubeconfig or 'the current context'} names a cluster that answers: the tests use that one")
        print("\n  unset KUBECONFIG (or choose no kind or minikube context) to have one brought up here")
        return
    cluster.up(arguments.nodes)
    paths = cluster.settings.paths
    say("the cluster is ready")
    print(cluster.kubectl("get", "nodes", "-o", "wide"), end="")
    print(f"\n  export KUBECONFIG={quote(str(paths.kubeconfig))}")
    print(f"  export PATH={quote(str(paths.programs))}:$PATH   # for its kubectl")
    if exceptions := proxies.exceptions(os.environ, cluster.settings.network):
        print(f"  export NO_PROXY={quote(exceptions)}")


def down(cluster: LocalCluster, _arguments: argparse.Namespace) -> None:
    cluster.down()
    say("the cluster is down")


def status(cluster: LocalCluster, _arguments: argparse.Namespace) -> None:
    given = given_cluster(cluster.settings)
    if given:
        require_answer(given)
    elif not cluster.is_up():
        raise ClusterError("the cluster is not up", "make cluster")
    kubectl = given or cluster.kubectl
    print(kubectl("get", "nodes", "-o", "wide"))
    print(kubectl("get", "pods", "-A", "-o", "wide"), end="")


def image(cluster: LocalCluster, _arguments: argparse.Namespace) -> None:
    if given := given_cluster(cluster.settings):
        raise ClusterError(
            f"{given.kubeconfig or 'the current context'} names a cluster into which `make image` cannot put an image",
            f"Build it with `docker build -t {cluster.settings.image} .`, then `kind load docker-image "
            f"{cluster.settings.image}` or `minikube image load {cluster.settings.image}`; elsewhere push it to your "
            "registry and set STREAMINGJOB_IMAGE to its name. (Unset KUBECONFIG for the cluster of `make cluster`.)",
        )
    cluster.build_image()
    say(f"the image {cluster.settings.image} is built and in every running node")


def provide_tools(cluster: LocalCluster, arguments: argparse.Namespace) -> None:
    for name in arguments.names or PROVIDERS:
        print(f"{name:12}{cluster.tool(name)}", flush=True)


def api_server(cluster: LocalCluster, arguments: argparse.Namespace) -> None:
    """Runs until it is interrupted: what was started in front of one's eyes is not forgotten."""
    settings = cluster.settings
    server = api_server_in(settings.paths.cache / f"{FOLDER_PREFIX}{os.getpid()}", settings, say)
    try:
        server.start()
        say("the API server is ready; interrupt to end it")
        print(f"\n  export KUBECONFIG={quote(str(server.kubeconfig))}", flush=True)
        if not arguments.once:
            wait_for_interrupt()
    finally:
        server.stop()
    say("the API server is gone")


def wait_for_interrupt() -> None:
    interrupted = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: interrupted.set())
    interrupted.wait()


def node(cluster: LocalCluster, arguments: argparse.Namespace) -> None:
    preflight.require_root()
    chosen = cluster.node(arguments.number)
    if arguments.action in ("kill", "cut", "mend") and not chosen.find_init():
        raise ClusterError(f"{chosen.name} is not running", "make cluster-status")
    actions: dict[str, Callable[[], None]] = {
        "start": lambda: cluster.add_node(arguments.number),
        "remove": lambda: cluster.remove_node(arguments.number),
        "kill": chosen.kill,
        "cut": chosen.cut_link,
        "mend": chosen.mend_link,
    }
    actions[arguments.action]()
    say(f"{chosen.name}: {arguments.action} done")


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(prog="localcluster", description=__doc__)
    commands = result.add_subparsers(required=True)
    add_up = commands.add_parser("up", help="a cluster with a ready node and DNS")
    add_up.add_argument("--nodes", type=int, default=1)
    add_up.set_defaults(action_of_command=up)
    commands.add_parser("down", help="nothing left of it but the cache").set_defaults(action_of_command=down)
    commands.add_parser("status", help="its nodes and pods").set_defaults(action_of_command=status)
    commands.add_parser("image", help="build the project's image and load it").set_defaults(action_of_command=image)
    add_tools = commands.add_parser("tools", help="helm and others that tests want: where they are, built if need be")
    add_tools.add_argument("names", nargs="*", help=f"all by default: {', '.join(PROVIDERS)}")
    add_tools.set_defaults(action_of_command=provide_tools)
    add_server = commands.add_parser("api-server", help="etcd and the API server alone, until interrupted")
    add_server.add_argument("--once", action="store_true", help="end it as soon as it is ready")
    add_server.set_defaults(action_of_command=api_server)
    add_node = commands.add_parser("node", help="start, remove, kill a node; cut or mend its link")
    add_node.add_argument("action", choices=["start", "remove", "kill", "cut", "mend"])
    add_node.add_argument("number", type=int)
    add_node.set_defaults(action_of_command=node)
    return result


REMEDIES = {
    errno.ENOSPC: "The disk is full. Make room, or set STREAMINGJOB_CLUSTER_CACHE to a folder on another disk.",
    errno.EDQUOT: "Your quota is used up. Set STREAMINGJOB_CLUSTER_CACHE to a folder on another disk.",
    errno.EACCES: "It belongs to another user. Be that user, or set STREAMINGJOB_CLUSTER_CACHE to a folder of yours.",
    errno.EROFS: "That cannot be written. Set STREAMINGJOB_CLUSTER_CACHE to a folder that can.",
}


def main() -> int:
    arguments = parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        settings = Settings.from_environment()
        proxies.reach_directly(settings.network)
        arguments.action_of_command(LocalCluster(settings, say), arguments)
    except ClusterError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        print(f"error: {error}\n  {REMEDIES[error.errno]}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here, `make cluster-down` undoes it", file=sys.stderr)
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
