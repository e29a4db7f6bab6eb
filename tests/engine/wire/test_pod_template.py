import pytest
from pydantic import ValidationError

from snapshot_engine.wire.pod_template import find_misshapen
from snapshot_engine.wire.quantities import ACCEPTED_BEFORE
from snapshot_engine.wire.spec import StreamingJobSpec


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


@pytest.mark.parametrize("part", ["driver", "executor"])
def test_what_would_not_be_merged_is_refused(part: str) -> None:
    """A pod's fields are one level deeper, where nobody would miss them."""
    template = {"nodeSelector": {"disk": "ssd"}, "containers": []}
    with pytest.raises(ValidationError) as refused:
        StreamingJobSpec.model_validate({"pipeline": {"entrypoint": "a:b"}, part: {"podTemplate": template}})
    assert "containers, nodeSelector would be ignored: a pod template has metadata and spec" in str(refused.value)


@pytest.mark.parametrize("part", ["driver", "executor"])
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"image": "mine:2"}, "spec.containers[{part}].image would be ignored: set spec.image instead"),
        (
            {"command": ["sleep"], "args": ["9"]},
            "spec.containers[{part}].command, spec.containers[{part}].args would be ignored: the engine's program runs "
            "there; what runs beside it is a container of another name",
        ),
    ],
    ids=str,
)
def test_a_program_of_the_engines_container_is_refused(part, given, told):
    template = {"spec": {"containers": [{"name": "sidecar", "image": "x", "args": []}, {"name": part, **given}]}}
    spec = {"pipeline": {"entrypoint": "a:b"}, part: {"podTemplate": template}}
    with pytest.raises(ValidationError) as refused:
        StreamingJobSpec.model_validate(spec)
    assert told.format(part=part) in str(refused.value)
    assert StreamingJobSpec.model_validate(spec, context=ACCEPTED_BEFORE)


def test_an_empty_field_of_the_engines_container_asks_for_nothing():
    template = {"spec": {"containers": [{"name": "driver", "image": None}]}}
    StreamingJobSpec.model_validate({"pipeline": {"entrypoint": "a:b"}, "driver": {"podTemplate": template}})


def test_a_template_may_be_a_whole_pod() -> None:
    template = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {}, "status": {}}
    StreamingJobSpec.model_validate({"pipeline": {"entrypoint": "a:b"}, "driver": {"podTemplate": template}})


def test_what_an_earlier_release_took_goes_on() -> None:
    spec = {"pipeline": {"entrypoint": "a:b"}, "driver": {"podTemplate": {"containers": []}}}
    assert StreamingJobSpec.model_validate(spec, context=ACCEPTED_BEFORE).driver.pod_template == {"containers": []}
