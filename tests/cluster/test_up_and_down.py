"""Up again after down, and nothing of it left on the host in between. On a cluster of its own, beside the other."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from localcluster import cgroups, debian_packages
from localcluster.settings import REPOSITORY
from localcluster.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root")]


def output(*command, env=None):
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def traces_on_host(settings):
    """All that a cluster could leave behind, as one comparable value. What another cluster has is left out."""
    env = debian_packages.environment(settings.paths)
    return {
        "processes": processes_of(settings),
        "mounts": sorted(line for line in mounts() if str(settings.paths.cache) in line),
        "named network namespaces": output("ip", "netns", "list", env=env),
        "interfaces": sorted(
            p.name for p in Path("/sys/class/net").iterdir() if p.name.startswith(settings.names.cluster)
        ),
        "routes": [line for line in output("ip", "route", env=env).splitlines() if settings.network.prefix in line],
        "iptables": output("iptables-save", env=env) + output("iptables-legacy-save", env=env),
        "cgroups": cgroups.existing(settings.names.cgroup),
        "kernel settings": {name: Path("/proc/sys", name).read_text() for name in KERNEL_SETTINGS},
        "folders": [folder for folder in FOLDERS_OF_NODES if Path(folder).exists()],
    }


KERNEL_SETTINGS = ("net/ipv4/ip_forward", "vm/overcommit_memory", "kernel/panic", "kernel/panic_on_oops")
FOLDERS_OF_NODES = ("/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/var/log/containers", "/run/containerd")


def processes_of(settings):
    """Those that run a program or hold a working directory of this cluster's, and those that it started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace").replace("\0", " ")
        except OSError:
            continue
        if str(settings.paths.cache) in words:
            found.append(words)
    return sorted(found)


def mounts():
    return Path("/proc/self/mounts").read_text().splitlines()


def test_down_leaves_nothing_and_a_second_up_works(separate_cluster):
    before = traces_on_host(separate_cluster.settings)
    assert before["processes"] == []

    began = time.monotonic()
    separate_cluster.up(nodes=2)
    print(f"two nodes and DNS after {time.monotonic() - began:.1f} s")
    during = traces_on_host(separate_cluster.settings)
    assert during["processes"] and during["interfaces"] and during["cgroups"] and during["routes"]
    assert during["iptables"] == before["iptables"]
    assert during["mounts"] == before["mounts"]

    began = time.monotonic()
    separate_cluster.down()
    print(f"down after {time.monotonic() - began:.1f} s")
    assert traces_on_host(separate_cluster.settings) == before

    began = time.monotonic()
    separate_cluster.up()
    print(f"the second up took {time.monotonic() - began:.1f} s")
    assert separate_cluster.node_condition(separate_cluster.node(1)) == "True"
    separate_cluster.up()
    separate_cluster.down()
    assert traces_on_host(separate_cluster.settings) == before


def test_down_cleans_up_after_processes_that_were_killed(separate_cluster):
    before = traces_on_host(separate_cluster.settings)
    separate_cluster.up()
    separate_cluster.node(1).find_init().signal(9)
    separate_cluster.plane.processes.find("etcd").signal(9)
    separate_cluster.down()
    assert traces_on_host(separate_cluster.settings) == before


def start_in_the_background(settings):
    environment = {
        "CACHE": str(settings.paths.cache),
        "NAME": settings.names.cluster,
        "NETWORK": settings.network.prefix,
        "FIRST_PORT": str(settings.ports.api_server),
    }
    env = {
        **os.environ,
        "PYTHONPATH": str(REPOSITORY / "hack" / "cluster"),
        **{f"STREAMINGJOB_CLUSTER_{name}": value for name, value in environment.items()},
    }
    env.pop("KUBECONFIG", None)
    return subprocess.Popen([sys.executable, "-m", "localcluster", "up"], env=env)


@pytest.mark.parametrize(
    "interrupted_at", ["kube-apiserver.pid.json", "kube-scheduler.pid.json", "node-1-init.pid.json"]
)
def test_an_interrupted_up_is_made_good_by_the_next(separate_cluster, interrupted_at):
    settings = separate_cluster.settings
    before = traces_on_host(settings)
    starting = start_in_the_background(settings)
    wait_for(interrupted_at, (settings.paths.running / interrupted_at).exists, seconds=120, every=0.01)
    starting.kill()
    starting.wait()
    separate_cluster.up()
    assert separate_cluster.node_condition(separate_cluster.node(1)) == "True"
    separate_cluster.down()
    assert traces_on_host(settings) == before


def test_up_brings_a_lost_node_back_and_keeps_what_the_cluster_knows(separate_cluster):
    separate_cluster.up()
    separate_cluster.kubectl("create", "namespace", "kept")
    separate_cluster.node(1).kill()
    separate_cluster.up()
    assert separate_cluster.node_condition(separate_cluster.node(1)) == "True"
    assert "kept" in separate_cluster.kubectl("get", "namespace", "kept")
