"""Packages that were unpacked in part are not taken for whole."""

import pytest
from localcluster import debian_packages
from localcluster.settings import Paths

TOOL = debian_packages.PackageSet("tool", ("tool",), ("tool-of-this-test",))


def test_an_unpacking_that_was_interrupted_is_done_again(tmp_path, monkeypatch):
    paths = Paths(tmp_path)
    program = debian_packages.root(paths) / "usr" / "bin" / "tool-of-this-test"
    library = debian_packages.root(paths) / "usr" / "lib" / "library"

    def interrupted(_archives, _target):
        program.parent.mkdir(parents=True)
        program.touch(mode=0o755)
        raise KeyboardInterrupt

    def whole(_archives, _target):
        library.parent.mkdir(parents=True)
        library.touch()

    monkeypatch.setattr(debian_packages, "download", lambda *_: [])
    monkeypatch.setattr(debian_packages, "unpack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        debian_packages.provide(paths, TOOL)
    assert debian_packages.find_program(paths, "tool-of-this-test")

    monkeypatch.setattr(debian_packages, "unpack", whole)
    debian_packages.provide(paths, TOOL)
    assert library.exists()
    assert debian_packages.is_provided(paths, TOOL)
