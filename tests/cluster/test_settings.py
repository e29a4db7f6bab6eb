"""Values of the environment that cannot be right are refused in words."""

import pytest
from localcluster.errors import ClusterError
from localcluster.settings import Settings


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
