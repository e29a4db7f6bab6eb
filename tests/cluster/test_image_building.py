"""What a build takes over from this machine, and in which surroundings it runs."""

import os
import subprocess

import pytest
from localcluster.commands import run
from localcluster.image_building import ImageBuilder, isolated, pip_settings


def test_pip_is_told_what_this_machine_was_told_by_variables_too():
    env = {**os.environ, "PIP_INDEX_URL": "https://index.example/simple", "PIP_TRUSTED_HOST": "index.example"}
    settings = pip_settings(env)
    assert settings["index-url"] == "https://index.example/simple"
    assert settings["trusted-host"] == "index.example"


@pytest.mark.cluster
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")
def test_folders_may_have_spaces_in_their_names(tmp_path):
    unpacked, var_lib = tmp_path / "with spaces" / "root", tmp_path / "with spaces" / "var lib"
    (unpacked / "usr" / "bin").mkdir(parents=True)
    program = unpacked / "usr" / "bin" / "program-of-this-test"
    program.write_text("#!/bin/sh\nls /var/lib\n")
    program.chmod(0o755)
    var_lib.mkdir()
    (var_lib / "its own").touch()
    command = isolated(["/usr/bin/program-of-this-test"], unpacked, var_lib)
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "its own\n"), done.stderr


@pytest.fixture
def builder(cluster, project_image):
    """After a build, and before the next one of whomever."""
    if cluster.local is None:
        pytest.skip("images are built for our own cluster only")
    with cluster.local.lock("image-lock"):
        yield ImageBuilder(cluster.local.settings.paths, print)


@pytest.mark.cluster
def test_what_a_killed_build_left_is_removed_and_what_the_next_can_use_stays(builder):
    def buildah(*arguments):
        return run(builder.isolated(builder.command(*arguments)), env=builder.env).split()

    kept = set(buildah("images", "--all", "--quiet"))
    assert buildah("containers", "--quiet") == [], "the build before has cleaned up"
    (container,) = buildah("from", "scratch")
    (nameless,) = buildah("commit", "--quiet", container)
    buildah("from", nameless)
    builder.remove_leftovers()
    assert buildah("containers", "--quiet") == []
    assert set(buildah("images", "--all", "--quiet")) == kept
