"""What a build takes over from this machine, and in which surroundings it runs."""

import os
import subprocess

import pytest
from localcluster.image_building import isolated, pip_settings


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
