"""Building the programs, as far as that takes no minutes."""

import os
import subprocess

import pytest
from localcluster import programs
from localcluster.errors import ClusterError
from localcluster.settings import Paths

pytestmark = pytest.mark.cluster
"""With them, for it takes ten processor-seconds."""


@pytest.fixture
def go():
    try:
        return programs.require_go()
    except ClusterError as error:
        pytest.skip(str(error))


@pytest.fixture
def paths(tmp_path, monkeypatch):
    """Of a module that is built in seconds."""
    sources = tmp_path / "sources"
    sources.mkdir()
    (sources / "go.mod").write_text("module example/small\n\ngo 1.21\n")
    (sources / "main.go").write_text('package main\n\nfunc main() { println("built") }\n')
    monkeypatch.setattr(programs, "SOURCES", sources)
    monkeypatch.setenv("GOTOOLCHAIN", "local")
    return Paths(tmp_path / "cache")


def test_a_build_writes_into_the_cache_alone(go, paths, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "nowhere"))
    left_by_a_killed_build = paths.cache / "go" / "tmp-kubernetes" / "go-build1"
    left_by_a_killed_build.mkdir(parents=True)
    programs.build(paths, go)
    assert not left_by_a_killed_build.exists()
    done = subprocess.run([paths.programs / "small"], env=os.environ, capture_output=True, text=True, check=True)
    assert done.stderr == "built\n"
