"""Up again after down, and nothing of it left on the host in between. On a cluster of its own, beside the other."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from localcluster import cgroups, debian_packages

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
