from pathlib import Path

import pytest

from snapshot_engine.wire import ManifestError, StreamingJob, apply_overrides, load_manifest, parse_manifest

MINIMAL = """\
apiVersion: streamingjob.dev/v1alpha1
kind: StreamingJob
metadata:
  name: orders
spec:
  pipeline:
    entrypoint: jobs.orders:main
"""


def with_spec(lines: str) -> str:
    return MINIMAL + "".join(f"  {line}\n" for line in lines.splitlines())


def problems_of(text: str) -> str:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(text, "job.yaml")
    return str(caught.value)


def test_a_minimal_manifest_gets_defaults_for_all_else() -> None:
    job = parse_manifest(MINIMAL)
    assert job.metadata.name == "orders"
    assert job.spec.parallelism == 1
    assert job.spec.checkpoint.interval == 10.0
    assert job.spec.executor.memory == 2 * 2**30
    assert job.spec.executor_instances == 1


def test_a_job_survives_being_written_and_read() -> None:
    job = parse_manifest(with_spec("checkpoint: {interval: 250ms, storage: {uri: s3://b/p}}\nparallelism: 3"))
    assert StreamingJob.model_validate(job.to_wire()) == job
    assert job.to_wire()["spec"]["checkpoint"]["interval"] == "250ms"


def test_a_file_is_read_and_named_in_errors(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(MINIMAL.replace("pipeline:", "pipelin:"))
    with pytest.raises(ManifestError, match=rf"{file}:6: spec\.pipelin: unknown field; did you mean \"pipeline\"\?"):
        load_manifest(file)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"nowhere\.yaml: cannot be read: No such file"):
        load_manifest(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            "checkpoint: {intervall: 1s}",
            'job.yaml:8: spec.checkpoint.intervall: unknown field; did you mean "interval"?',
        ),
        ("checkpoint: {interval: 10}", "spec.checkpoint.interval: 10 is not a duration"),
        ("checkpoint: {interval: 0s}", "spec.checkpoint.interval: must be longer than 0"),
        (
            "checkpoint: {mode: exactly}",
            'spec.checkpoint.mode: found "exactly"; allowed: ExactlyOnce or AtLeastOnce',
        ),
        ("checkpoint: {storage: {}}", "spec.checkpoint.storage: give exactly one of uri and pvc"),
        *(
            (
                f"checkpoint: {{storage: {{pvc: {{claimName: c, subPath: {path}}}}}}}",
                "spec.checkpoint.storage.pvc.subPath: must be a directory inside the volume, such as jobs/orders",
            )
            for path in ("/abs", "../x", "a/../b", "a/..", "..")
        ),
        (
            "recovery: {heartbeatTimeout: 100ms}",
            "spec.recovery.heartbeatTimeout: must be at least 1s: slots say that they are alive every 500ms",
        ),
        (
            "recovery: {backoff: {initial: 2m, max: 1m}}",
            "spec.recovery.backoff: max must not be shorter than initial",
        ),
        (
            "executor: {standby: -1}",
            "spec.executor.standby: found -1; input should be greater than or equal to 0",
        ),
        ("executor: {memory: lots}", "spec.executor.memory: 'lots' is not a size in bytes"),
        ("executor: {memory: '1'}", "spec.executor.memory: '1' is not a size in bytes: write a number with its unit"),
        (
            "executor: {memory: 895Mi}",
            "spec.executor.memory: must be at least 896Mi: it is the memory of the whole pod, of which the JVM needs "
            "512Mi and the slots 384Mi",
        ),
        (
            "driver: {memory: 895Mi}",
            "spec.driver.memory: must be at least 896Mi: it is the memory of the whole pod, of which the JVM needs "
            "512Mi and the JobMaster 384Mi",
        ),
        (
            "sparkConf: {spark.speculation: 'true'}",
            "spark.speculation is set by the engine: speculation does not go",
        ),
        ("parallelism: many", 'job.yaml:8: spec.parallelism: found "many"; input should be a valid integer'),
    ],
)
def test_a_mistake_is_reported_with_its_field_and_what_is_allowed(lines: str, message: str) -> None:
    assert message in problems_of(with_spec(lines))


def test_every_mistake_is_reported_at_once() -> None:
    text = problems_of(with_spec("paralelism: 2\nstate: Paused"))
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Orders", "is not a name"),
        ("1st", "is not a name"),
        ("a" * 46, "has 46 characters; at most 45 are allowed"),
    ],
)
def test_a_name_that_kubernetes_would_refuse_is_refused(name: str, message: str) -> None:
    assert message in problems_of(MINIMAL.replace("name: orders", f"name: {name}"))


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("{}", "give exactly one of entrypoint, source and configMap; found none of them"),
        ("{entrypoint: a:b, source: x}", "found entrypoint and source"),
        ("{entrypoint: no-function}", "it must be module:function or file.py:function"),
        ("{source: x, path: lib}", "path goes with entrypoint only"),
    ],
)
def test_a_pipeline_has_one_origin(pipeline: str, message: str) -> None:
    text = MINIMAL.replace("pipeline:\n    entrypoint: jobs.orders:main", f"pipeline: {pipeline}")
    assert message in problems_of(text)


@pytest.mark.parametrize("entrypoint", ["jobs.orders:main", "orders.py:pipeline", "lib/orders.py:main"])
def test_an_entrypoint_is_a_module_or_a_file_with_a_function(entrypoint: str) -> None:
    assert parse_manifest(MINIMAL.replace("jobs.orders:main", entrypoint)).spec.pipeline.entrypoint == entrypoint


def test_other_documents_of_the_file_are_passed_over() -> None:
    assert parse_manifest(f"kind: ConfigMap\n---\n{MINIMAL}").metadata.name == "orders"


def test_a_file_without_a_job_says_what_it_holds() -> None:
    assert "job.yaml: holds no StreamingJob (kind: StreamingJob); found ConfigMap" in problems_of("kind: ConfigMap")


def test_two_jobs_in_a_file_are_refused() -> None:
    assert "holds 2 StreamingJobs" in problems_of(f"{MINIMAL}---\n{MINIMAL}")


def test_an_anchor_that_holds_itself_is_reported_with_its_line() -> None:
    with pytest.raises(ManifestError, match=r"job.yaml:2: what is written here holds itself"):
        parse_manifest("kind: StreamingJob\nspec: &spec\n  pipeline: {args: {a: [*spec]}}\n", "job.yaml")


def test_text_that_is_no_yaml_is_reported_with_its_line() -> None:
    assert problems_of("kind: StreamingJob\nspec: [").startswith("job.yaml:2: not valid YAML")


def test_a_manifest_read_back_from_a_cluster_is_accepted() -> None:
    text = (
        MINIMAL.replace("name: orders", "name: orders\n  uid: u1\n  resourceVersion: '5'")
        + "status: {phase: Running}\n"
    )
    job = parse_manifest(text)
    assert job.metadata.uid == "u1"
    assert "status" not in job.to_wire()


def test_overrides_set_fields_by_path_and_leave_the_document_alone() -> None:
    document = {"spec": {"parallelism": 1}}
    changed = apply_overrides(document, ["spec.parallelism=4", "spec.checkpoint.interval=500ms", "spec.image=a=b"])
    assert changed == {"spec": {"parallelism": 4, "checkpoint": {"interval": "500ms"}, "image": "a=b"}}
    assert document == {"spec": {"parallelism": 1}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("spec.parallelism", "write it as path=value"),
        ("spec.parallelism.x=1", "spec.parallelism is 1, which has no fields"),
    ],
)
def test_an_override_that_cannot_be_set_is_explained(override: str, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        apply_overrides({"spec": {"parallelism": 1}}, [override])


@pytest.mark.parametrize("value", ["2024-13-45", "!!int many", "2024-01-01T25:00:00"])
def test_a_value_that_only_looks_like_a_date_or_a_number_is_reported_with_its_line(value: str) -> None:
    text = MINIMAL + f"  pod: {value}\n"
    line = text.count("\n")
    assert problems_of(text).startswith(
        f"job.yaml:{line}: not valid YAML: {value.removeprefix('!!int ')} cannot be read"
    )


def test_such_a_value_in_an_override_is_text() -> None:
    assert apply_overrides({}, ["spec.image=2024-13-45"]) == {"spec": {"image": "2024-13-45"}}


def test_a_file_that_is_not_utf_8_is_reported(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_bytes(b"kind: \xff\xfe")
    with pytest.raises(ManifestError, match=r"job\.yaml: is not UTF-8 text: byte 6"):
        load_manifest(tmp_path / "job.yaml")


def test_a_field_that_is_given_twice_is_reported_with_both_lines() -> None:
    with pytest.raises(ManifestError, match=r":9: not valid YAML: parallelism is given twice, here and in line 8"):
        parse_manifest(MINIMAL + "  parallelism: 1\n  parallelism: 2\n")


def test_what_an_override_has_set_is_not_looked_for_in_the_file() -> None:
    with pytest.raises(ManifestError) as caught:
        parse_manifest(MINIMAL + "  paralelism: 2\n  parallelism: 2\n", overrides=["spec.parallelism=0"])
    first, second = str(caught.value).splitlines()
    assert first.startswith("manifest:8: spec.paralelism: unknown field")
    assert second.startswith("manifest (--set spec.parallelism=0): spec.parallelism: found 0;")


def test_a_value_where_fields_are_wanted_names_some_of_them() -> None:
    with pytest.raises(
        ManifestError, match=r"spec.checkpoint: found 7; it must be an object with fields such as inter"
    ):
        parse_manifest(MINIMAL + "  checkpoint: 7\n")
