"""Up again after down, and nothing of it left on the host in between. On a cluster of its own, beside the other."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from localcluster import cgroups, debian_packages, volumes
from localcluster.cluster import give_to_caller
from localcluster.host_network import link_exists
from localcluster.testing.chosen_cluster import local_cluster
from localcluster.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.skipif(os.geteuid() != 0, reason="nodes need root")]


def output(*command, env=None):
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout


def traces_on_host(settings):
    """All that a cluster could leave behind, as one comparable value. What another cluster has is left out."""
    env = debian_packages.environment(settings.paths)
    return {
        "processes": processes_of(settings),
        "mounts": mounts(),
        "named network namespaces": output("ip", "netns", "list", env=env),
        "interfaces": sorted(
            p.name for p in Path("/sys/class/net").iterdir() if p.name.startswith(settings.names.cluster)
        ),
        "routes": [line for line in output("ip", "route", env=env).splitlines() if settings.network.prefix in line],
        "firewall": firewall_rules(env),
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
    """The host's whole table."""
    return sorted(Path("/proc/self/mounts").read_text().splitlines())


def firewall_rules(env, inside=()):
    """Of both kinds of table and both protocols, without the counters and the comments with the time."""
    found = {}
    for program in ("iptables-save", "iptables-legacy-save", "ip6tables-save", "ip6tables-legacy-save"):
        lines = output(*inside, program, env=env).splitlines()
        found[program] = [re.sub(r" ?\[\d+:\d+\] ?", "", line) for line in lines if not line.startswith("#")]
    return found


def test_down_leaves_nothing_and_a_second_up_works(separate_cluster):
    before = traces_on_host(separate_cluster.settings)
    assert before["processes"] == []

    began = time.monotonic()
    separate_cluster.up(nodes=2)
    print(f"two nodes and DNS after {time.monotonic() - began:.1f} s")
    during = traces_on_host(separate_cluster.settings)
    assert during["processes"] and during["interfaces"] and during["cgroups"] and during["routes"]
    assert during["firewall"] == before["firewall"]
    assert during["mounts"] == before["mounts"]
    assert "KUBE-SERVICES" in str(firewall_rules_of(separate_cluster.node(1))), "the same look finds a node's rules"

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


def firewall_rules_of(node):
    return firewall_rules(node.env, node.entrance())


def test_a_mount_that_was_left_would_be_seen(separate_cluster, tmp_path):
    before = traces_on_host(separate_cluster.settings)
    assert traces_on_host(separate_cluster.settings) == before
    output("mount", "-t", "tmpfs", "tmpfs", str(tmp_path))
    try:
        assert traces_on_host(separate_cluster.settings) != before
    finally:
        output("umount", str(tmp_path))
    assert traces_on_host(separate_cluster.settings) == before


def test_down_and_up_find_a_cluster_whose_settings_the_shell_has_forgotten(separate_cluster, command_environment):
    settings = separate_cluster.settings
    before = traces_on_host(settings)
    assert start_in_the_background(settings, command_environment).wait(120) == 0
    env = {**command_environment, "STREAMINGJOB_CLUSTER_CACHE": str(settings.paths.cache)}
    assert subprocess.run([sys.executable, "-m", "localcluster", "up"], env=env, check=False).returncode == 0
    assert subprocess.run([sys.executable, "-m", "localcluster", "down"], env=env, check=False).returncode == 0
    assert traces_on_host(settings) == before


def test_down_cleans_up_after_processes_that_were_killed(separate_cluster):
    before = traces_on_host(separate_cluster.settings)
    separate_cluster.up()
    separate_cluster.node(1).find_init().signal(9)
    separate_cluster.plane.processes.find("etcd").signal(9)
    separate_cluster.down()
    assert traces_on_host(separate_cluster.settings) == before


def start_in_the_background(settings, command_environment):
    environment = {
        "CACHE": str(settings.paths.cache),
        "NAME": settings.names.cluster,
        "NETWORK": settings.network.prefix,
        "FIRST_PORT": str(settings.ports.api_server),
    }
    env = {**command_environment, **{f"STREAMINGJOB_CLUSTER_{name}": value for name, value in environment.items()}}
    return subprocess.Popen([sys.executable, "-m", "localcluster", "up"], env=env)


@pytest.mark.parametrize(
    "interrupted_at", ["kube-apiserver.pid.json", "kube-scheduler.pid.json", "node-1-init.pid.json"]
)
def test_an_interrupted_up_is_made_good_by_the_next(separate_cluster, command_environment, interrupted_at):
    settings = separate_cluster.settings
    before = traces_on_host(settings)
    starting = start_in_the_background(settings, command_environment)
    wait_for(interrupted_at, (settings.paths.running / interrupted_at).exists, seconds=120, every=0.01)
    starting.kill()
    starting.wait()
    separate_cluster.up()
    assert separate_cluster.node_condition(separate_cluster.node(1)) == "True"
    separate_cluster.down()
    assert traces_on_host(settings) == before


def test_down_leaves_a_bridge_that_its_own_up_cannot_have_made(separate_cluster):
    """Its folder is there and empty: `up` was killed before anything else, or `down` after everything else."""
    separate_cluster.settings.paths.running.mkdir()
    separate_cluster.host_network.create_bridge()  # another cluster's of the same name
    try:
        separate_cluster.down()
        assert link_exists(separate_cluster.settings.names.bridge)
        assert not separate_cluster.has_traces()
    finally:
        separate_cluster.host_network.delete_bridge()


def test_up_brings_a_lost_node_back_and_keeps_what_the_cluster_knows(separate_cluster):
    separate_cluster.up()
    separate_cluster.kubectl("create", "namespace", "kept")
    separate_cluster.node(1).kill()
    separate_cluster.up()
    assert separate_cluster.node_condition(separate_cluster.node(1)) == "True"
    assert "kept" in separate_cluster.kubectl("get", "namespace", "kept")


def test_up_makes_a_volume_anew_whose_claim_is_gone(separate_cluster):
    separate_cluster.up()
    for _ in volumes.NAMES:
        separate_cluster.apply(CLAIM)
        wait_for("the claim to be bound", lambda: phases(separate_cluster, "pvc") == ["Bound"], seconds=30)
        bound = separate_cluster.kubectl("get", "pvc", "-o", "jsonpath={.items[0].spec.volumeName}")
        (separate_cluster.settings.paths.volumes / bound / "file").touch()
        separate_cluster.kubectl("delete", "pvc", "any")
    wait_for("all to be released", lambda: set(phases(separate_cluster, "pv")) == {"Released"}, seconds=30)
    separate_cluster.up()
    wait_for("all to be there again", lambda: set(phases(separate_cluster, "pv")) == {"Available"}, seconds=30)
    assert list(separate_cluster.settings.paths.volumes.glob("*/file")) == []


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "any", "namespace": "default"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
}


def phases(cluster, kind):
    return cluster.kubectl("get", kind, "-o", "jsonpath={.items[*].status.phase}").split()


def test_up_mends_a_link_that_was_cut(separate_cluster):
    separate_cluster.up()
    node = separate_cluster.node(1)
    node.cut_link()
    assert link_state(separate_cluster) == "down"
    separate_cluster.up()
    assert link_state(separate_cluster) == "up"
    assert separate_cluster.kubectl("get", "--raw", f"/api/v1/nodes/{node.name}/proxy/healthz") == "ok"


def link_state(cluster):
    return Path("/sys/class/net", cluster.settings.names.link(1), "operstate").read_text().strip()


def test_a_machine_with_a_proxy(separate_cluster, command_environment):
    """It is for downloads; nobody is there to answer for the cluster's own addresses."""
    proxies = {"HTTPS_PROXY": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    assert start_in_the_background(separate_cluster.settings, {**command_environment, **proxies}).wait(120) == 0


def test_up_starts_a_dead_scheduler_again_and_keeps_what_the_cluster_knows(separate_cluster):
    separate_cluster.up()
    separate_cluster.kubectl("create", "namespace", "kept")
    separate_cluster.plane.processes.find("kube-scheduler").kill()
    assert not separate_cluster.is_up()
    separate_cluster.up()
    assert separate_cluster.is_up()
    assert "kept" in separate_cluster.kubectl("get", "namespace", "kept")


def test_a_node_starts_its_kubelet_again_when_it_dies(separate_cluster):
    separate_cluster.up()
    node = separate_cluster.node(1)
    first = int(node.enter("pgrep", "-x", "kubelet"))
    node.enter("kill", "-9", str(first))

    def another():
        found = subprocess.run(
            [*node.entrance(), "pgrep", "-x", "kubelet"], capture_output=True, text=True, check=False
        )
        return found.stdout.strip() not in ("", str(first))

    wait_for("another kubelet", another, seconds=30)
    separate_cluster.wait_until_ready(node, separate_cluster.ready_condition(node)[1])


def test_tests_take_down_what_they_started(separate_cluster):
    with local_cluster(separate_cluster):
        assert separate_cluster.is_up()
    assert not separate_cluster.has_traces()


def test_tests_leave_a_cluster_that_somebody_was_just_starting(separate_cluster, command_environment):
    settings = separate_cluster.settings
    starting = start_in_the_background(settings, command_environment)
    wait_for("the user's start", (settings.paths.running / "etcd.pid.json").exists, seconds=120, every=0.01)
    assert not separate_cluster.is_up()
    with local_cluster(separate_cluster):
        assert starting.wait(60) == 0
    assert separate_cluster.is_up()


def test_tests_leave_a_cluster_that_somebody_wanted_meanwhile(separate_cluster, command_environment):
    with local_cluster(separate_cluster):
        assert start_in_the_background(separate_cluster.settings, command_environment).wait(120) == 0
    assert separate_cluster.is_up()


@pytest.fixture
def called_by_sudo(monkeypatch):
    monkeypatch.setenv("SUDO_UID", "4321")
    monkeypatch.setenv("SUDO_GID", "4322")


def test_whoever_used_sudo_may_read_the_kubeconfig(tmp_path, called_by_sudo):
    file = tmp_path / "kubeconfig"
    file.touch(mode=0o600)
    give_to_caller(file)
    assert (file.stat().st_uid, file.stat().st_gid) == (4321, 4322)
