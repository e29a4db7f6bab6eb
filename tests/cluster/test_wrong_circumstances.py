"""What is wrong, and what to do: said before anything is started, in words, without a traceback."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from localcluster import debian_packages, programs
from localcluster.errors import ClusterError
from localcluster.settings import Paths, Settings

pytestmark = pytest.mark.cluster

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="root alone gets as far as this check")


@pytest.fixture
def localcluster(command_environment):
    """The command behind `make cluster`, as another user or in another environment."""

    def run(*arguments, user=None, **environment):
        env = {**command_environment, **environment}
        python = "/usr/bin/python3" if user else sys.executable
        return subprocess.run(
            [python, "-m", "localcluster", *arguments], env=env, user=user, capture_output=True, text=True, check=False
        )

    return run


def message_of(done):
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    return done.stderr


@needs_root
def test_not_root(localcluster):
    message = message_of(localcluster("up", user="nobody"))
    assert "need root" in message
    assert "sudo -E" in message
    assert "KUBECONFIG" in message


def test_no_go(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(programs, "GO_OUTSIDE_THE_PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"no Go found(.|\n)*Install Go 1\.26"):
        programs.provide(Paths(tmp_path / "cache"), print)


def test_no_debian_packages_and_no_apt(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda *_args, **_options: None)
    with pytest.raises(ClusterError, match=r"no apt-get(.|\n)*containerd runc containernetworking-plugins"):
        debian_packages.provide(Paths(tmp_path), debian_packages.NODE_PACKAGES)


@needs_root
def test_debian_packages_that_cannot_be_downloaded(tmp_path, monkeypatch):
    """apt without any source, as on a machine that is cut off."""
    settings = tmp_path / "apt.conf"
    settings.write_text(f'Dir::Etc "{tmp_path}/nowhere";')
    monkeypatch.setenv("APT_CONFIG", str(settings))
    absent = debian_packages.PackageSet("absent", ("containerd-of-nowhere",), ("containerd-of-nowhere",))
    with pytest.raises(ClusterError, match=r"cannot be downloaded(.|\n)*apt-get install containerd-of-nowhere"):
        debian_packages.provide(Paths(tmp_path / "cache"), absent)


@needs_root
def test_a_port_in_use(separate_cluster):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", separate_cluster.settings.ports.etcd))
        taken.listen()
        with pytest.raises(ClusterError) as raised:
            separate_cluster.up()
    message = str(raised.value)
    assert f"port {separate_cluster.settings.ports.etcd} (for the etcd) is in use by process {os.getpid()}" in message
    assert "STREAMINGJOB_CLUSTER_FIRST_PORT" in message


@needs_root
def test_a_full_disk(localcluster, folder_on_disk):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", folder_on_disk], check=True)
    try:
        message = message_of(localcluster("up", STREAMINGJOB_CLUSTER_CACHE=str(folder_on_disk)))
    finally:
        subprocess.run(["umount", folder_on_disk], check=True)
    assert "0.1 GB free; 8 GB are needed" in message
    assert "STREAMINGJOB_CLUSTER_CACHE" in message


@needs_root
def test_another_clusters_interface(localcluster, separate_cluster, folder_on_disk):
    separate_cluster.up()
    names = separate_cluster.settings.names
    other = {"CACHE": str(folder_on_disk / "other"), "NAME": names.cluster}
    shared = separate_cluster.settings.paths
    (folder_on_disk / "other").mkdir()
    for folder in (shared.programs, shared.debian):
        (folder_on_disk / "other" / folder.name).symlink_to(folder)
    env = {f"STREAMINGJOB_CLUSTER_{name}": value for name, value in other.items()}
    message = message_of(localcluster("up", **env))
    assert f"the network interface {names.bridge} is there already" in message
    for variable in ("STREAMINGJOB_CLUSTER_CACHE", "STREAMINGJOB_CLUSTER_NAME", "cluster-down"):
        assert variable in message
    assert not (folder_on_disk / "other" / "run").exists(), "nothing to undo"


@needs_root
def test_a_cache_of_another_user(localcluster):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        cache = Path(folder)
        cache.chmod(0o755)
        (cache / "lock").touch()
        message = message_of(localcluster("down", user="nobody", STREAMINGJOB_CLUSTER_CACHE=folder))
    assert "Permission denied" in message
    assert "STREAMINGJOB_CLUSTER_CACHE" in message


@needs_root
def test_addresses_that_this_machine_routes_elsewhere(localcluster, separate_cluster):
    routes = json.loads(separate_cluster.host_network.ip("-json", "-4", "route"))
    used = next(route["dst"] for route in routes if route["dst"] != "default")
    prefix = ".".join(used.split(".")[:2])
    done = localcluster(
        "up",
        STREAMINGJOB_CLUSTER_CACHE=str(separate_cluster.settings.paths.cache),
        STREAMINGJOB_CLUSTER_NAME=separate_cluster.settings.names.cluster,
        STREAMINGJOB_CLUSTER_NETWORK=prefix,
    )
    message = message_of(done)
    assert f"routes {used}" in message
    assert "STREAMINGJOB_CLUSTER_NETWORK" in message


@needs_root
@pytest.mark.parametrize(
    ("folder", "reason"),
    [
        ("/run/streamingjob-cluster", "of which every node has one of its own"),
        ("/tmp/a:b", "has ':' in its name"),
    ],
)
def test_a_cache_folder_that_nodes_cannot_use(localcluster, folder, reason):
    message = message_of(localcluster("up", STREAMINGJOB_CLUSTER_CACHE=folder))
    assert reason in message
    assert "Set STREAMINGJOB_CLUSTER_CACHE to" in message


def test_a_value_that_cannot_be_right(localcluster):
    message = message_of(localcluster("status", STREAMINGJOB_CLUSTER_FIRST_PORT="many"))
    assert "STREAMINGJOB_CLUSTER_FIRST_PORT is 'many'" in message


def test_an_image_for_a_cluster_of_ones_own(localcluster, tmp_path):
    message = message_of(localcluster("image", KUBECONFIG=str(tmp_path / "somebodys")))
    assert "docker build -t streamingjob:" in message
    assert "kind load docker-image" in message
    assert "STREAMINGJOB_IMAGE" in message


@needs_root
def test_a_node_that_is_not_running(localcluster, tmp_path):
    message = message_of(localcluster("node", "kill", "7", STREAMINGJOB_CLUSTER_CACHE=str(tmp_path / "cache")))
    assert "node-7 is not running" in message


def test_a_kubeconfig_whose_cluster_does_not_answer(tmp_path, monkeypatch):
    from localcluster.testing.chosen_cluster import chosen_cluster

    kubeconfig = tmp_path / "kubeconfig"
    contexts = [{"name": "gone", "context": {"cluster": "gone"}}]
    clusters = [{"name": "gone", "cluster": {"server": "https://127.0.0.1:1"}}]
    content = {"apiVersion": "v1", "kind": "Config", "contexts": contexts, "clusters": clusters}
    kubeconfig.write_text(json.dumps({**content, "current-context": "gone"}))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with pytest.raises(ClusterError, match=r"does not answer(.|\n)*unset KUBECONFIG"):
        chosen_cluster(Settings.from_environment(), print).__enter__()
