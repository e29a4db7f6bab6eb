"""Cgroups on a machine with their second version: a folder stands in for the kernel's."""

import pytest
from localcluster import cgroups
from localcluster.errors import ClusterError


@pytest.fixture
def root(tmp_path, monkeypatch):
    folder = tmp_path / "cgroup"
    folder.mkdir()
    (folder / "cgroup.controllers").write_text("cpu memory pids\n")
    (folder / "cgroup.subtree_control").write_text("memory\n")
    monkeypatch.setattr(cgroups, "ROOT", folder)
    return folder


def test_only_what_the_root_did_not_hand_down_before_is_taken_back(root, tmp_path):
    record = tmp_path / "record"
    cgroups.create("some-cluster", "node-1", record)
    assert record.read_text() == "cpu pids"
    cgroups.take_back(record)
    assert (root / "cgroup.subtree_control").read_text() == "-pids", "each is written by itself, this one last"


def test_a_second_node_does_not_overwrite_what_was_noted(root, tmp_path):
    record = tmp_path / "record"
    cgroups.create("some-cluster", "node-1", record)
    (root / "cgroup.subtree_control").write_text("cpu memory pids")
    cgroups.create("some-cluster", "node-2", record)
    assert record.read_text() == "cpu pids"


def test_a_cgroup_that_stays_is_an_error_that_names_its_processes(root, monkeypatch):
    (root / "some-cluster").mkdir()
    (root / "some-cluster" / "cgroup.procs").write_text("17\n18\n")
    monkeypatch.setattr(cgroups, "remove_tree", lambda folder, seconds: None)
    with pytest.raises(ClusterError, match=r"cannot be removed(.|\n)*17 18"):
        cgroups.remove("some-cluster")
