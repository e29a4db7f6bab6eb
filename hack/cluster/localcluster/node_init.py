"""The first process of a node, inside its namespaces: prepares them, starts and ends its programs.

Started by node.py as `unshare --net --mount --pid --fork … python -m localcluster.node_init <specification>`.
When it ends, the kernel ends every process of the node, and with the last of them its mounts and its network.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType

from localcluster.commands import run, succeeds
from localcluster.errors import ClusterError
from localcluster.node_configuration import CONTAINERD_SOCKET
from localcluster.waiting import wait_for

CONTAINERD, KUBELET, KUBE_PROXY = "containerd", "kubelet", "kube-proxy"
NODE_INTERFACE = "eth0"
IMAGES_LOADED = "images-loaded"
SECONDS_BEFORE_ANOTHER_START = 1.0

KERNEL_SETTINGS_OF_THE_KUBELET = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}


@dataclass(frozen=True)
class NodeSpecification:
    """All that the inside of a node must be told; written as JSON by the outside."""

    name: str
    folder: str
    var_lib: str
    var_log: str
    address: str
    gateway: str
    routes: dict[str, str]
    """Pod ranges of the other nodes, and those nodes' addresses."""
    containerd: list[str]
    kubelet: list[str]
    kube_proxy: list[str]

    def write(self, target: Path) -> None:
        target.write_text(json.dumps(asdict(self), indent=1))

    @classmethod
    def read(cls, source: Path) -> NodeSpecification:
        return cls(**json.loads(source.read_text()))

    @property
    def images_loaded(self) -> Path:
        return Path(self.folder) / IMAGES_LOADED


def mount_private_folders(spec: NodeSpecification) -> None:
    run(["mount", "--make-rshared", "/"])
    run(["mount", "--bind", spec.var_lib, "/var/lib"])
    run(["mount", "--bind", spec.var_log, "/var/log"])
    run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])
    Path("/run/containerd").mkdir()


def shield_kernel_settings(spec: NodeSpecification) -> None:
    """The kubelet finds these as it wants them, and does not change the host's."""
    for name, value in KERNEL_SETTINGS_OF_THE_KUBELET.items():
        setting = Path("/proc/sys") / name
        if setting.exists():
            stand_in = Path(spec.folder) / "kernel" / name
            stand_in.parent.mkdir(parents=True, exist_ok=True)
            stand_in.write_text(f"{value}\n")
            run(["mount", "--bind", stand_in, setting])


def configure_network(spec: NodeSpecification) -> None:
    wait_for("the node's network cable", cable_plugged_in, seconds=20, every=0.02)
    run(["ip", "link", "set", "lo", "up"])
    run(["ip", "address", "add", f"{spec.address}/24", "dev", NODE_INTERFACE])
    run(["ip", "link", "set", NODE_INTERFACE, "up"])
    run(["ip", "route", "add", "default", "via", spec.gateway])
    for pods, node in spec.routes.items():
        run(["ip", "route", "add", pods, "via", node])
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def cable_plugged_in() -> bool:
    return succeeds(["ip", "link", "show", NODE_INTERFACE])


class NodeInit:
    def __init__(self, spec: NodeSpecification) -> None:
        self.spec = spec
        self.commands = {CONTAINERD: spec.containerd, KUBE_PROXY: spec.kube_proxy, KUBELET: spec.kubelet}
        self.programs: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}
        self.told_to_end = False
        signal.signal(signal.SIGTERM, self.on_terminate)

    def on_terminate(self, _signal: int, _frame: FrameType | None) -> None:
        self.told_to_end = True

    def start(self, name: str) -> None:
        log = Path(self.spec.folder).parent / "logs" / f"{self.spec.name}-{name}.log"
        with log.open("ab") as output:
            child = subprocess.Popen(
                self.commands[name], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
        self.programs[child.pid] = (name, child)
        print(f"{name} started as process {child.pid} of the node", flush=True)

    def start_programs(self) -> None:
        self.start(CONTAINERD)
        self.start(KUBE_PROXY)
        wait_for("containerd's socket", lambda: Path(CONTAINERD_SOCKET).exists(), seconds=30, every=0.05)
        while not self.spec.images_loaded.exists() and not self.told_to_end:
            time.sleep(0.05)
        self.start(KUBELET)

    def reap_until_told_to_end(self) -> None:
        while not self.told_to_end:
            self.reap()
            time.sleep(0.2)
            self.start_what_ended()

    def start_what_ended(self) -> None:
        """As a machine's service manager does; pods go on meanwhile."""
        running = {name for name, _ in self.programs.values()}
        for name in self.commands:
            if name not in running and not self.told_to_end:
                time.sleep(SECONDS_BEFORE_ANOTHER_START)
                self.start(name)

    def reap(self) -> None:
        """A first process inherits every orphan; the end of a program is reported."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if known := self.programs.pop(pid, None):
                print(f"{known[0]} ended with status {os.waitstatus_to_exitcode(status)}", flush=True)

    def end(self) -> None:
        """Without the kubelet nothing comes back; containerd is emptied and keeps only its images."""
        self.kill(KUBELET)
        self.kill(KUBE_PROXY)
        remove_containers()
        self.kill(CONTAINERD)

    def kill(self, name: str) -> None:
        for pid, (known, child) in list(self.programs.items()):
            if known == name:
                child.kill()
                child.wait()
                del self.programs[pid]


def remove_containers() -> None:
    ctr = ["ctr", "--address", CONTAINERD_SOCKET, "--namespace", "k8s.io", "--timeout", "5s"]
    for noun, removal in (("tasks", ["tasks", "rm", "--force"]), ("containers", ["containers", "rm"])):
        try:
            if listed := run([*ctr, noun, "ls", "-q"], timeout=10).split():
                run([*ctr, *removal, *listed], timeout=10)
        except ClusterError as error:  # the node ends all the same, and its processes with it
            print(error, flush=True)


def main() -> None:
    spec = NodeSpecification.read(Path(sys.argv[1]))
    init = NodeInit(spec)
    mount_private_folders(spec)
    shield_kernel_settings(spec)
    configure_network(spec)
    init.start_programs()
    init.reap_until_told_to_end()
    init.end()


if __name__ == "__main__":
    main()
