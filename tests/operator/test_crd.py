import re
from pathlib import Path

import pytest

from snapshot_engine.wire.spec import StreamingJobSpec
from streamingjob_operator.crd import build_crd, render_crd, spec_schema
from streamingjob_operator.manifests.pod_security import scratch_mounts
from streamingjob_operator.reference import render_reference
from streamingjob_operator.resource import JobPhase, StreamingJobStatus

ROOT = Path(__file__).parents[2]


def test_the_committed_crd_is_the_generated_one():
    committed = (ROOT / "crds" / "streamingjobs.yaml").read_text()
    assert committed == render_crd(), "run `make generate`"


def test_the_chart_and_the_reference_page_are_up_to_date():
    in_chart = ROOT / "charts" / "streamingjob-operator" / "files" / "streamingjobs.yaml"
    assert in_chart.read_text() == render_crd(), "run `make generate`"
    assert (ROOT / "docs" / "crd-reference.md").read_text() == render_reference(), "run `make generate`"


def test_every_field_of_the_model_is_in_the_crd():
    properties = build_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    for model, name in ((StreamingJobSpec, "spec"), (StreamingJobStatus, "status")):
        fields = {info.alias for info in model.model_fields.values()}
        assert set(properties[name]["properties"]) == fields


def test_every_field_of_the_spec_has_a_description():
    def undescribed(schema, path):
        for name, child in schema.get("properties", {}).items():
            if not child.get("description"):
                yield f"{path}.{name}"
            yield from undescribed(child, f"{path}.{name}")

    assert list(undescribed(spec_schema(), "spec")) == []


def test_defaults_are_written_as_a_user_would_write_them():
    checkpoint = spec_schema()["properties"]["checkpoint"]["properties"]
    assert checkpoint["interval"]["description"].endswith("Default: 10s.")
    assert spec_schema()["properties"]["executor"]["properties"]["memory"]["description"].endswith("Default: 2Gi.")


def test_only_parallelism_has_a_default_in_the_crd():
    """A default that a new release adds would change stored specs, and restart every job."""

    def defaults(schema, path):
        for name, child in schema.get("properties", {}).items():
            if "default" in child:
                yield f"{path}.{name}"
            yield from defaults(child, f"{path}.{name}")

    assert list(defaults(spec_schema(), "spec")) == ["spec.parallelism"]


def test_a_phase_of_a_newer_operator_is_not_refused_by_the_crd():
    status = build_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
    assert "enum" not in status["properties"]["phase"]
    assert JobPhase.RUNNING == "Running"


def refusals_of_storage(uri):
    """What the CRD says to it. Its rules are matches of regular expressions that CEL and Python read alike."""
    storage = spec_schema()["properties"]["checkpoint"]["properties"]["storage"]
    for rule in storage["properties"]["uri"].get("x-kubernetes-validations", []):
        form = re.fullmatch(r"(!?)self[.]matches[(]r'(.*)'[)]", rule["rule"])
        assert form is not None, rule
        if (re.search(form[2], uri) is None) != (form[1] == "!"):
            yield rule["message"]


@pytest.mark.parametrize("uri", ["my-bucket/orders", "/tmp/orders", "/mnt/x", "memory://x", "hdfs://n/p", "s3://", ""])
def test_storage_without_a_scheme_that_all_pods_can_reach_is_refused(uri):
    [message] = refusals_of_storage(uri)
    assert "s3://bucket/prefix" in message and "pvc" in message


@pytest.mark.parametrize("folder", [*(mount["mountPath"] for mount in scratch_mounts()), "/tmp/orders", "/dev/shm/x"])
def test_storage_that_each_pod_has_for_itself_is_refused(folder):
    for uri in (f"file://{folder}", f"file:///{folder}"):
        [message] = refusals_of_storage(uri)
        assert "each pod" in message and "pvc" in message


@pytest.mark.parametrize(
    "uri",
    [
        "s3://b",
        "s3a://b/p",
        "gs://b/p",
        "az://c/p",
        "abfs://c@a/p",
        "abfss://c@a/p",
        "file:///mnt/state",
        "file:///tmpfs",
    ],
)
def test_storage_that_all_pods_can_share_is_taken(uri):
    assert list(refusals_of_storage(uri)) == []
