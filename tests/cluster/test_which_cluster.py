"""A cluster that somebody has chosen is used, and ours is not brought up beside it."""

import os
import subprocess
import sys

import pytest
from localcluster.errors import ClusterError
from localcluster.settings import REPOSITORY, Settings
from localcluster.testing.chosen_cluster import chosen_cluster, development_context, given_cluster

pytestmark = pytest.mark.cluster


def test_tests_run_against_the_cluster_that_kubeconfig_names(api_server, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig))
    with chosen_cluster(Settings.from_environment(), print) as chosen:
        assert chosen.local is None
        assert chosen.kubeconfig == api_server.kubeconfig
        assert chosen.kubectl.get("namespace", "default") is not None


def test_make_cluster_leaves_it_at_the_cluster_that_kubeconfig_names(api_server):
    environment = {"KUBECONFIG": str(api_server.kubeconfig)}
    env = {**os.environ, "PYTHONPATH": str(REPOSITORY / "hack" / "cluster"), **environment}
    command = [sys.executable, "-m", "localcluster", "up"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "names a cluster that answers" in done.stdout


def test_our_own_kubeconfig_is_ours(monkeypatch):
    settings = Settings.from_environment()
    monkeypatch.setenv("KUBECONFIG", str(settings.paths.kubeconfig))
    assert given_cluster(settings) is None


def test_our_own_is_like_anybodys_for_a_user_who_is_not_root(monkeypatch):
    settings = Settings.from_environment()
    monkeypatch.setenv("KUBECONFIG", str(settings.paths.kubeconfig))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    given = given_cluster(settings)
    assert given is not None
    assert given.kubeconfig == settings.paths.kubeconfig


def test_a_user_who_is_not_root_and_names_no_cluster_is_told(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ClusterError, match=r"need root(.|\n)*KUBECONFIG"):
        chosen_cluster(Settings.from_environment(), print).__enter__()


@pytest.mark.parametrize(
    ("context", "taken"), [("kind-tests", True), ("minikube", True), ("production", False), ("", False)]
)
def test_only_contexts_made_for_development_are_taken_unasked(context, taken):
    assert development_context(context) is taken
