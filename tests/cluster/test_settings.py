"""Values of the environment that cannot be right are refused in words."""

import pytest
from localcluster.errors import ClusterError
from localcluster.settings import Settings


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    """One in which no cluster runs; and no other value of this shell's."""
    for name in ("NAME", "NETWORK", "FIRST_PORT", "NODE_GRACE_SECONDS", "IMAGE_TAG"):
        monkeypatch.delenv(f"STREAMINGJOB_CLUSTER_{name}", raising=False)
    monkeypatch.setenv("STREAMINGJOB_CLUSTER_CACHE", str(tmp_path))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("FIRST_PORT", "many"),
        ("FIRST_PORT", "80"),
        ("FIRST_PORT", "65535"),
        ("NODE_GRACE_SECONDS", "-1"),
        ("NODE_GRACE_SECONDS", "1.5"),
        ("NETWORK", "10.213.0.0/16"),
        ("NETWORK", "10.256"),
        ("NAME", "a name"),
        ("NAME", "thirteenchars"),
        ("IMAGE_TAG", "a:b"),
    ],
)
def test_a_bad_value_is_refused_by_its_name(monkeypatch, name, value):
    monkeypatch.setenv(f"STREAMINGJOB_CLUSTER_{name}", value)
    with pytest.raises(ClusterError, match=rf"STREAMINGJOB_CLUSTER_{name} is (.|\n)*It must be .* for example"):
        Settings.from_environment()


def test_good_values_are_taken(monkeypatch):
    values = {"FIRST_PORT": "20000", "NETWORK": "192.168", "NAME": "twelveletter", "IMAGE_TAG": "v1.2-x"}
    for name, value in values.items():
        monkeypatch.setenv(f"STREAMINGJOB_CLUSTER_{name}", value)
    settings = Settings.from_environment()
    assert settings.ports.scheduler == 20004
    assert settings.network.host_address == "192.168.0.1"
    assert settings.image == "streamingjob:v1.2-x"


@pytest.fixture
def running_cluster(monkeypatch):
    """Started by somebody whose shell said more than ours does now."""
    with monkeypatch.context() as its_shell:
        for name, value in {"FIRST_PORT": "20000", "NETWORK": "10.77", "NAME": "other"}.items():
            its_shell.setenv(f"STREAMINGJOB_CLUSTER_{name}", value)
        settings = Settings.from_environment()
    settings.paths.running.mkdir()
    settings.remember()
    return settings


def test_a_running_cluster_is_found_by_what_it_was_started_with(running_cluster):
    """Else `make cluster-down` would look for the traces of another."""
    assert Settings.from_environment() == running_cluster


def test_another_value_than_the_running_cluster_has_is_refused(running_cluster, monkeypatch):
    monkeypatch.setenv("STREAMINGJOB_CLUSTER_NAME", "third")
    with pytest.raises(ClusterError, match=r"NAME is 'third', but (.|\n)* has 'other'(.|\n)*Unset it"):
        Settings.from_environment()


def test_the_same_value_as_the_running_cluster_has_is_taken(running_cluster, monkeypatch):
    monkeypatch.setenv("STREAMINGJOB_CLUSTER_NAME", "other")
    assert Settings.from_environment() == running_cluster


def test_when_it_is_gone_the_defaults_count_again(running_cluster):
    running_cluster.paths.settings_of_run.unlink()
    assert Settings.from_environment().names.cluster == "streamingjob"
