from pathlib import Path

from snapshot_engine.wire.spec import StreamingJobSpec
from streamingjob_operator.crd import build_crd, render_crd, spec_schema
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
