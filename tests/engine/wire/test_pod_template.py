import pytest

from snapshot_engine.wire.pod_template import find_misshapen


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ({"metadata": ["a"]}, "metadata must be a mapping; found ['a']"),
        ({"metadata": {"labels": ["a"]}}, "metadata.labels must be a mapping; found ['a']"),
        ({"metadata": {"labels": None}}, "metadata.labels must be a mapping; found null"),
        ({"spec": "x"}, "spec must be a mapping; found 'x'"),
        ({"spec": None}, "spec must be a mapping; found null"),
        ({"spec": {"containers": None}}, "spec.containers must be a list; found null"),
        ({"spec": {"containers": [{"image": "x"}]}}, "spec.containers[0] has no name"),
        ({"spec": {"containers": [{"name": "a", "env": None}]}}, "spec.containers[a].env must be a list; found null"),
        ({"spec": {"containers": [{"name": "a", "env": [{}]}]}}, "spec.containers[a].env[0] has no name"),
        ({"spec": {"volumes": ["v"]}}, "spec.volumes[0] must be a mapping; found 'v'"),
    ],
    ids=str,
)
def test_what_cannot_be_merged_is_named(template, told):
    assert find_misshapen(template) == [told]


def test_what_can_be_merged_is_left_to_the_api_server():
    container = {"name": "driver", "ports": [{"containerPort": 1}], "envFrom": [{"secretRef": {"name": "s"}}]}
    assert find_misshapen({"apiVersion": "v1", "spec": {"containers": [container], "tolerations": "odd"}}) == []
    assert find_misshapen({}) == []
