import json

import pytest
import yaml

from snapshot_engine.wire.control import CONTROL_PORT, CONTROL_PORT_NAME, Environment
from snapshot_engine.wire.quantities import ACCEPTED_BEFORE
from snapshot_engine.wire.spec import CHECKPOINT_MOUNT, StreamingJob, StreamingJobSpec
from streamingjob_operator import naming
from streamingjob_operator.manifests.access import DRIVER_RULES, build_role, build_role_binding
from streamingjob_operator.manifests.driver_pod import build_cleaner_pod, build_driver_pod, build_planner_pod
from streamingjob_operator.manifests.executor_template import build_executor_probe, build_executor_template
from streamingjob_operator.manifests.ownership import Owner
from streamingjob_operator.manifests.secret import build_secret, read_control_token
from streamingjob_operator.manifests.service import build_service
from streamingjob_operator.manifests.stored_spec import (
    UnreadableSpecError,
    build_stored_spec,
    read_stored_spec,
    resolve_spec,
)
from streamingjob_operator.pods import view_pod
from streamingjob_operator.resource import DriverRecord, RestorePoint

OWNER = Owner("orders", "shop", "uid-1")


def stored(context=None, **changes):
    spec = {
        "pipeline": {"entrypoint": "a:b"},
        "checkpoint": {"storage": {"uri": "s3://b/p", "secretRef": {"name": "s3-keys"}}},
    }
    judged = StreamingJobSpec.model_validate({**spec, **changes}, context=context)
    return resolve_spec(judged, "abc0123456", "operator-image:1")


def driver(**changes):
    values = {
        "generation": 4,
        "pod_name": "orders-driver-4",
        "spec_hash": "abc0123456",
        "launched_at": "2026-01-01T00:00:00Z",
    }
    return DriverRecord.model_validate({**values, **changes})


def environment(pod):
    return {item["name"]: item.get("value") for item in pod["spec"]["containers"][0]["env"]}


def container(pod, name):
    return next(each for each in pod["spec"]["containers"] if each["name"] == name)


def all_pods(context=None, **changes):
    kept = stored(context, **changes)
    return [
        build_driver_pod(OWNER, kept, driver()),
        build_planner_pod(OWNER, kept),
        build_cleaner_pod(OWNER, kept),
        build_executor_template(OWNER, kept.spec),
    ]


@pytest.mark.parametrize("number", range(4))
def test_every_pod_meets_the_restricted_standard(number):
    pod = all_pods()[number]
    context, [container] = pod["spec"]["securityContext"], pod["spec"]["containers"]
    assert context["runAsNonRoot"] is True and context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_the_planner_is_told_which_state_to_look_at_whatever_mode_was_stored():
    kept, elsewhere = stored(upgradeMode="Stateless"), RestorePoint(id="plan", path="s3://b/older")
    pods = [build_planner_pod(OWNER, kept, restore) for restore in (None, elsewhere, RestorePoint(id="plan"))]
    pods.append(build_planner_pod(OWNER, kept, RestorePoint(id="plan", ignore_state=True)))
    told = [environment(pod) for pod in pods]
    assert [each[Environment.IGNORE_STATE] for each in told] == ["false", "false", "false", "true"]
    assert [each.get(Environment.RESTORE_FROM) for each in told] == [None, "s3://b/older", None, None]
    assert len({pod["metadata"]["name"] for pod in pods}) == 4, "none is taken for another"


@pytest.mark.parametrize("part", ["driver", "executor"])
def test_a_template_cannot_put_other_volumes_in_the_place_of_the_jobs_state_and_secrets(part):
    """Else a job would begin anew on another claim, although its storage cannot be changed."""
    storage = {"checkpoint": {"storage": {"pvc": {"claimName": "state"}}}}
    plain = {volume["name"]: volume for volume in volumes_of(part, **storage)}
    others = [{"name": name, "persistentVolumeClaim": {"claimName": "other"}} for name in plain]
    more = [{"name": name, "emptyDir": {}} for name in ("checkpoints", "config", "secrets")]
    merged = {
        v["name"]: v for v in volumes_of(part, **storage, **{part: {"podTemplate": {"spec": {"volumes": others}}}})
    }
    assert {name: v for name, v in merged.items() if name.startswith("streamingjob-")} == {
        name: v for name, v in plain.items() if name.startswith("streamingjob-")
    }
    assert "streamingjob-checkpoints" in merged
    added = volumes_of(part, **storage, **{part: {"podTemplate": {"spec": {"volumes": more}}}})
    assert all(volume in added for volume in [*plain.values(), *more]), "names that anybody may choose are free"


def volumes_of(part, **changes):
    kept = stored(**changes)
    pod = build_driver_pod(OWNER, kept, driver()) if part == "driver" else build_executor_template(OWNER, kept.spec)
    return pod["spec"]["volumes"]


def test_the_driver_pod_says_how_large_its_job_is():
    pod = build_driver_pod(OWNER, stored(parallelism=5, executor={"cores": 2, "standby": 1}), driver())
    given = {"uid": "pod-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
    seen = view_pod({**pod, "metadata": {**pod["metadata"], **given}})
    assert seen.size is not None and (seen.size.parallelism, seen.size.executors) == (5, 4)


def test_the_driver_is_told_who_it_is():
    pod = build_driver_pod(OWNER, stored(), driver())
    told = environment(pod)
    assert told["STREAMINGJOB_GENERATION"] == "4"
    assert told["STREAMINGJOB_UID"] == "uid-1"
    assert told["STREAMINGJOB_NAME"] == "orders" and told["STREAMINGJOB_NAMESPACE"] == "shop"
    assert {"POD_NAME", "POD_IP", "POD_UID"} <= set(told)
    assert pod["metadata"]["labels"][naming.GENERATION_LABEL] == "4"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "uid-1"
    assert pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["containers"][0]["args"] == ["driver"]


def test_the_driver_is_told_what_to_restore():
    restored = environment(build_driver_pod(OWNER, stored(), driver(restore=RestorePoint(id="r1", path="s3://p"))))
    assert (restored[Environment.RESTORE_ID], restored[Environment.RESTORE_FROM]) == ("r1", "s3://p")
    fresh = environment(build_driver_pod(OWNER, stored(), driver(restore=RestorePoint(id="r2", ignore_state=True))))
    assert fresh[Environment.IGNORE_STATE] == "true" and Environment.RESTORE_FROM not in fresh


def test_only_a_driver_that_must_not_find_nothing_is_told_so():
    """Of all other drivers the pods are what they were, so that nothing restarts for a newer operator."""
    plain = build_driver_pod(OWNER, stored(), driver())
    assert Environment.EXPECTED_CHECKPOINT not in environment(plain)
    told = build_driver_pod(OWNER, stored(), driver(expected_checkpoint="s3://b/p/checkpoints/7-1"))
    assert environment(told)[Environment.EXPECTED_CHECKPOINT] == "s3://b/p/checkpoints/7-1"
    told["spec"]["containers"][0]["env"].pop()
    assert told == plain


def test_only_the_driver_has_a_service_account_token():
    driver_pod, planner, cleaner, executor = all_pods()
    assert driver_pod["spec"]["automountServiceAccountToken"] is True
    assert [pod["spec"]["automountServiceAccountToken"] for pod in (planner, cleaner, executor)] == [False] * 3


def test_executors_get_the_spark_secret_and_not_the_control_token():
    volumes = {volume["name"]: volume for volume in build_executor_template(OWNER, stored().spec)["spec"]["volumes"]}
    assert [item["key"] for item in volumes["streamingjob-secrets"]["secret"]["items"]] == ["spark-secret"]


def test_a_volume_for_checkpoints_is_mounted_in_driver_and_executors():
    changes = {"checkpoint": {"storage": {"pvc": {"claimName": "state", "subPath": "orders"}}}}
    for pod in all_pods(**changes):
        assert {"name": "streamingjob-checkpoints", "persistentVolumeClaim": {"claimName": "state"}} in pod["spec"][
            "volumes"
        ]
        mounts = {mount["name"]: mount for mount in pod["spec"]["containers"][0]["volumeMounts"]}
        assert mounts["streamingjob-checkpoints"]["subPath"] == "orders"
    assert stored(**changes).spec.checkpoint.storage.root == "file:///var/lib/streamingjob/checkpoints"


def test_credentials_reach_driver_and_executors():
    for pod in all_pods():
        assert pod["spec"]["containers"][0]["envFrom"] == [{"secretRef": {"name": "s3-keys"}}]


def test_a_pipeline_from_a_config_map_is_a_file_in_the_driver():
    pod = build_driver_pod(OWNER, stored(pipeline={"configMap": {"name": "code", "key": "job.py"}}), driver())
    sources = pod["spec"]["volumes"][0]["projected"]["sources"]
    assert {"configMap": {"name": "code", "items": [{"key": "job.py", "path": "pipeline/job.py"}]}} in sources


def test_a_pod_template_is_merged_and_never_replaces():
    template = {
        "metadata": {"labels": {"team": "shop", naming.UID_LABEL: "evil"}, "name": "mine"},
        "spec": {
            "tolerations": [{"key": "spot"}],
            "restartPolicy": "Always",
            "containers": [
                {
                    "name": "driver",
                    "image": "other",
                    "args": ["sh"],
                    "resources": {"limits": {"cpu": "2"}},
                    "env": [{"name": "A", "value": "1"}, {"name": "STREAMINGJOB_UID", "value": "evil"}],
                },
                {"name": "sidecar", "image": "s"},
            ],
            "volumes": [{"name": "more", "emptyDir": {}}],
        },
    }
    pod = build_driver_pod(OWNER, stored(ACCEPTED_BEFORE, driver={"podTemplate": template}), driver())
    own, sidecar = pod["spec"]["containers"]
    assert pod["metadata"]["name"] == "orders-driver-4"
    assert pod["metadata"]["labels"]["team"] == "shop" and pod["metadata"]["labels"][naming.UID_LABEL] == "uid-1"
    assert pod["spec"]["tolerations"] == [{"key": "spot"}] and pod["spec"]["restartPolicy"] == "Never"
    assert (own["image"], own["args"]) == ("operator-image:1", ["driver"])
    assert own["resources"]["limits"] == {"memory": "1Gi", "cpu": "2"}
    assert environment(pod)["A"] == "1" and environment(pod)["STREAMINGJOB_UID"] == "uid-1"
    assert sidecar["name"] == "sidecar"
    assert {"streamingjob-config", "tmp", "spark-local-dir-1", "more"} <= {
        volume["name"] for volume in pod["spec"]["volumes"]
    }


def pods_with(container, *, storage, volumes=(), context=None):
    """Driver and executor with the same template for the container that runs the engine."""

    def part(name):
        return {"podTemplate": {"spec": {"containers": [{"name": name, **container}], "volumes": list(volumes)}}}

    driver_pod, _, _, executor = all_pods(
        context, checkpoint={"storage": storage}, driver=part("driver"), executor=part("executor")
    )
    return [pod["spec"]["containers"][0] for pod in (driver_pod, executor)]


URI = {"uri": "s3://b/p", "secretRef": {"name": "s3-keys"}}


def test_a_pod_template_adds_to_the_credentials_and_does_not_replace_them():
    more = {"configMapRef": {"name": "mine"}}
    for container in pods_with({"envFrom": [more]}, storage=URI):
        assert container["envFrom"] == [more, {"secretRef": {"name": "s3-keys"}}]


@pytest.mark.parametrize("path", [CHECKPOINT_MOUNT, f"{CHECKPOINT_MOUNT}/"])
def test_a_pod_template_mounts_nothing_in_place_of_the_checkpoints(path):
    mine = {"name": "mine", "mountPath": path, "subPath": "elsewhere"}
    mounts = {"volumeMounts": [mine, {"name": "mine", "mountPath": "/data"}]}
    for container in pods_with(
        mounts, storage={"pvc": {"claimName": "state"}}, volumes=[{"name": "mine", "emptyDir": {}}]
    ):
        at_checkpoints = [m for m in container["volumeMounts"] if m["mountPath"].rstrip("/") == CHECKPOINT_MOUNT]
        assert at_checkpoints == [{"name": "streamingjob-checkpoints", "mountPath": CHECKPOINT_MOUNT}]
        assert "/data" in [mount["mountPath"] for mount in container["volumeMounts"]]


def test_a_pod_template_may_give_another_scratch_volume():
    mount = {"name": "fast", "mountPath": "/tmp"}
    for container in pods_with({"volumeMounts": [mount]}, storage=URI, volumes=[{"name": "fast", "emptyDir": {}}]):
        assert [each["name"] for each in container["volumeMounts"] if each["mountPath"] == "/tmp"] == ["fast"]


def test_a_pod_template_does_not_say_which_program_runs():
    """Neither does one that an earlier release has taken."""
    for container in pods_with({"command": ["sleep"], "args": ["sh"]}, storage=URI, context=ACCEPTED_BEFORE):
        assert "command" not in container and container.get("args") in (None, ["driver"])


@pytest.mark.parametrize("field", ["resources", "securityContext"])
def test_an_empty_block_of_a_pod_template_takes_nothing_away(field):
    template = {"spec": {"containers": [{"name": "driver", field: None}]}}
    pod = build_driver_pod(OWNER, stored(driver={"podTemplate": template}), driver())
    assert container(pod, "driver")[field]


def test_the_drivers_last_word_goes_where_the_engine_writes_it():
    template = {"spec": {"containers": [{"name": "driver", "terminationMessagePath": "/tmp/word"}]}}
    pod = build_driver_pod(OWNER, stored(driver={"podTemplate": template}), driver())
    assert "terminationMessagePath" not in container(pod, "driver")


def test_ports_of_a_pod_template_need_no_names_and_rename_none_of_the_engines():
    given = [{"containerPort": 9000}, {"containerPort": 9001}, {"name": "mine", "containerPort": CONTROL_PORT}]
    container, executor = pods_with({"ports": given}, storage=URI)
    assert [port["containerPort"] for port in executor["ports"]] == [9000, 9001, CONTROL_PORT]
    names = {port["containerPort"]: port.get("name") for port in container["ports"]}
    assert {9000, 9001} <= set(names) and names[CONTROL_PORT] == CONTROL_PORT_NAME


def test_a_value_of_the_operators_replaces_a_reference_of_the_same_name():
    mine = {"name": "STREAMINGJOB_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    container, _ = pods_with({"env": [mine]}, storage=URI)
    told = [each for each in container["env"] if each["name"] == "STREAMINGJOB_UID"]
    assert told == [{"name": "STREAMINGJOB_UID", "value": "uid-1"}]


def test_a_stored_spec_can_be_read_back_and_runs_the_same():
    kept = stored(parallelism=3)
    config_map = build_stored_spec(OWNER, kept)
    assert config_map["immutable"] is True
    assert read_stored_spec(json.loads(json.dumps(config_map))) == kept
    manifest = StreamingJob.model_validate(yaml.safe_load(config_map["data"]["job.yaml"]))
    assert manifest.spec.image == "operator-image:1" and manifest.metadata.uid == "uid-1"
    assert yaml.safe_load(config_map["data"]["executor.yaml"])["kind"] == "Pod"


def test_a_stored_spec_has_only_what_was_given():
    manifest = yaml.safe_load(build_stored_spec(OWNER, stored(parallelism=3))["data"]["job.yaml"])
    assert set(manifest["spec"]) == {"pipeline", "checkpoint", "parallelism", "image"}
    assert manifest["spec"]["checkpoint"] == {"storage": {"uri": "s3://b/p", "secretRef": {"name": "s3-keys"}}}


def test_fields_of_a_newer_release_are_ignored_in_what_is_stored():
    config_map = build_stored_spec(OWNER, stored())
    manifest = yaml.safe_load(config_map["data"]["job.yaml"])
    manifest["spec"]["checkpoint"]["novel"] = 1
    manifest["novel"] = True
    config_map["data"]["job.yaml"] = yaml.safe_dump(manifest)
    assert read_stored_spec(config_map) == stored()


@pytest.mark.parametrize(("memory", "size"), [("512Mi", 2**29), ("1000000000", 10**9)])
def test_memory_that_an_older_release_accepted_goes_on(memory, size):
    config_map = build_stored_spec(OWNER, stored())
    manifest = yaml.safe_load(config_map["data"]["job.yaml"])
    manifest["spec"]["executor"] = {"memory": memory}
    config_map["data"]["job.yaml"] = yaml.safe_dump(manifest)
    assert read_stored_spec(config_map).spec.executor.memory == size


@pytest.mark.parametrize(
    "data", [{}, {"job.yaml": "{"}, {"job.yaml": "spec: {parallelism: many}"}, {"job.yaml": "word"}], ids=str
)
def test_a_damaged_stored_spec_is_told_as_such(data):
    with pytest.raises(UnreadableSpecError):
        read_stored_spec({**build_stored_spec(OWNER, stored()), "data": data})


def test_the_image_in_the_spec_counts_before_the_operators():
    assert stored(image="mine:2").image == "mine:2"


def test_the_service_finds_a_driver_that_is_not_ready():
    service = build_service(OWNER)
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"] is True
    assert service["spec"]["selector"] == {naming.UID_LABEL: "uid-1", naming.COMPONENT_LABEL: "driver"}


def test_the_token_in_the_secret_is_the_one_that_was_put_in():
    assert read_control_token(build_secret(OWNER, "token", "spark")) == "token"


def test_the_driver_may_do_what_executors_need_and_no_more():
    assert {resource for rule in DRIVER_RULES for resource in rule["resources"]} == {"pods", "configmaps"}
    assert build_role(OWNER)["rules"] == DRIVER_RULES
    assert build_role_binding(OWNER)["roleRef"]["name"] == build_role(OWNER)["metadata"]["name"]


def probed_resources(resources, **executor):
    template = {"spec": {"containers": [{"name": "executor", "resources": resources}]}}
    pod = build_executor_probe(OWNER, stored(executor={"podTemplate": template, **executor}).spec)
    return container(pod, "executor")["resources"]


def test_executors_are_checked_with_the_resources_that_spark_gives_them():
    assert probed_resources(None, cores=3, memory="1Gi") == {
        "requests": {"cpu": "3", "memory": "1Gi"},
        "limits": {"memory": "1Gi"},
    }
    given = {"requests": {"cpu": "250m", "memory": "1Mi"}, "limits": {"cpu": 2}, "claims": []}
    assert probed_resources(given, memory="1Gi") == {
        "requests": {"cpu": "250m", "memory": "1Gi"},
        "limits": {"cpu": 2, "memory": "1Gi"},
        "claims": [],
    }


@pytest.mark.parametrize("resources", ["x", ["x"], {"requests": "x"}, {"limits": ["x"]}], ids=str)
def test_resources_of_the_wrong_shape_are_left_to_the_api_server(resources):
    assert probed_resources(resources) == resources
