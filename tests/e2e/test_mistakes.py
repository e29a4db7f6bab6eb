"""A manifest with each kind of mistake: refused, or a condition, with a message that names the field."""

from __future__ import annotations

import pytest
from localcluster.errors import ClusterError

MISTAKES = {
    "an interval that is no duration": ({"checkpoint": {"interval": "soon"}}, "spec.checkpoint.interval"),
    "an interval that is not positive": ({"checkpoint": {"interval": "0s"}}, "spec.checkpoint.interval"),
    "a standby below nothing": ({"executor": {"standby": -1}}, "spec.executor.standby"),
    "a setting that the engine owns": ({"sparkConf": {"spark.task.maxFailures": "4"}}, "sparkConf"),
    "no storage": ({"checkpoint": {"storage": None}}, "spec.checkpoint.storage"),
    "an unknown mode": ({"upgradeMode": "Blue-Green"}, "spec.upgradeMode"),
    "two origins of the code": ({"pipeline": {"entrypoint": "a:b"}}, "pipeline"),
    "a field that does not exist": ({"paralelism": 3}, "paralelism"),
}


def merged(base, change):
    if not isinstance(base, dict) or not isinstance(change, dict):
        return change
    return {key: merged(base.get(key), change[key]) if key in change else base[key] for key in {**base, **change}}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_api_server_refuses_it_and_names_the_field(crd, make_job, mistake):
    job = make_job("orders")
    change, field = MISTAKES[mistake]
    manifest = job.manifest(count=1, rate=1, parallelism=1)
    manifest["spec"] = merged(manifest["spec"], change)
    with pytest.raises(ClusterError) as refused:
        job.namespace.apply(manifest)
    assert field in str(refused.value)


def test_a_name_that_is_too_long_is_refused(crd, make_job):
    with pytest.raises(ClusterError, match="45"):
        make_job("a" * 46).apply(count=1, rate=1, parallelism=1)


def test_a_pod_template_that_makes_no_pod_is_a_condition(job):
    template = {"spec": {"containers": [{"name": "executor", "resources": {"requests": {"cpu": "-1"}}}]}}
    job.apply(count=1, rate=1, parallelism=1, executor={"podTemplate": template})
    job.until("the refusal", lambda s: job.condition("Stalled")["status"] == "True", seconds=60)
    assert "spec.executor with its podTemplate" in job.condition("Stalled")["message"]


def test_code_that_cannot_be_imported_is_a_condition(job):
    job.apply("import nothing_of_that_name\n\ndef pipeline(env, **_): ...\n", count=1, rate=1, parallelism=1)
    job.until("its failure", lambda s: s["phase"] == "Failed")
    assert job.condition("Stalled")["reason"] == "InvalidPipeline"
    assert "nothing_of_that_name" in job.condition("Stalled")["message"]


def test_an_image_that_is_not_there_is_said_so(job):
    job.apply(count=1, rate=1, parallelism=1, image="nowhere.invalid/no-such-image:1")
    # Not the first reason that is given: the pod may have to wait for its volume before the image is asked for.
    job.until("the image to be named", lambda s: "no-such-image" in job.condition("Ready")["message"], seconds=90)
    assert job.condition("Ready")["reason"] == "DriverCannotStart"
