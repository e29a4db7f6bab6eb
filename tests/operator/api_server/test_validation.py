"""Each kind of mistake in a manifest is refused by the API server, with a message that says what is allowed."""

import pytest

from streamingjob_operator.kube import STREAMING_JOBS, ApiError

pytestmark = pytest.mark.cluster

STORAGE = {"storage": {"uri": "s3://bucket/orders"}}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"checkpoint": {}}, "spec.checkpoint.storage is required: give uri"),
        (
            {"checkpoint": {**STORAGE, "interval": "10"}},
            'spec.checkpoint.interval: Invalid value: "10": must be a duration',
        ),
        (
            {"checkpoint": {**STORAGE, "interval": "0s"}},
            'spec.checkpoint.interval: Invalid value: "0s": must be longer than 0',
        ),
        ({"checkpoint": {**STORAGE, "interval": 10}}, "spec.checkpoint.interval in body must be of type string"),
        (
            {"checkpoint": {**STORAGE, "minPause": "-1s"}},
            'spec.checkpoint.minPause: Invalid value: "-1s": must be a duration',
        ),
        ({"checkpoint": {**STORAGE, "mode": "exactly"}}, 'supported values: "ExactlyOnce", "AtLeastOnce"'),
        (
            {"checkpoint": {**STORAGE, "retained": 0}},
            "spec.checkpoint.retained in body should be greater than or equal to 1",
        ),
        ({"checkpoint": {"storage": {}}}, "spec.checkpoint.storage: Invalid value: give exactly one of uri and pvc"),
        (
            {"checkpoint": {"storage": {"uri": "s3://b", "pvc": {"claimName": "c"}}}},
            "spec.checkpoint.storage: Invalid value: give exactly one of uri and pvc",
        ),
        ({"checkpoint": {"storage": {"uri": "my-bucket/orders"}}}, "give a place that all pods of the job can reach"),
        ({"checkpoint": {"storage": {"uri": "memory://x"}}}, "give a place that all pods of the job can reach"),
        ({"checkpoint": {"storage": {"uri": "file:///tmp/orders"}}}, "each pod has this folder for itself"),
        *(
            (
                {"checkpoint": {"storage": {"pvc": {"claimName": "c", "subPath": path}}}},
                f'spec.checkpoint.storage.pvc.subPath: Invalid value: "{path}": must be a directory inside the volume',
            )
            for path in ("/abs", "../x", "a/../b", "a/..", "..")
        ),
        ({"executor": {"standby": -1}}, "spec.executor.standby in body should be greater than or equal to 0"),
        ({"executor": {"memory": "lots"}}, 'spec.executor.memory: Invalid value: "lots": must be a size with its unit'),
        ({"executor": {"memory": "1"}}, 'spec.executor.memory: Invalid value: "1": must be a size with its unit'),
        ({"driver": {"memory": "1"}}, 'spec.driver.memory: Invalid value: "1": must be a size with its unit'),
        ({"driver": {"memory": "895Mi"}}, 'spec.driver.memory: Invalid value: "895Mi": must be at least 896Mi'),
        ({"executor": {"memory": "895Mi"}}, 'spec.executor.memory: Invalid value: "895Mi": must be at least 896Mi'),
        ({"executor": {"memory": "0Gi"}}, 'spec.executor.memory: Invalid value: "0Gi": must be more than 0'),
        ({"parallelism": 0}, "spec.parallelism in body should be greater than or equal to 1"),
        ({"pipeline": {}}, "give exactly one of entrypoint, source and configMap"),
        ({"pipeline": {"entrypoint": "a:b", "source": "x"}}, "give exactly one of entrypoint, source and configMap"),
        ({"pipeline": {"entrypoint": "orders"}}, "must be module:function, such as jobs.orders:pipeline"),
        ({"recovery": {"backoff": {"initial": "2m"}}}, "max must not be shorter than initial"),
        ({"recovery": {"heartbeatTimeout": "100ms"}}, "must be at least 1s"),
        ({"recovery": {"strategy": "Regional"}}, 'supported values: "Region", "All", "Individual"'),
        ({"restoreNonce": 1}, "restoreNonce needs restoreFrom"),
        ({"sparkConf": {"spark.speculation": "true"}}, "holds a setting that the engine owns"),
        ({"sparkConf": {"spark.dynamicAllocation.enabled": "true"}}, "holds a setting that the engine owns"),
        ({"state": "Paused"}, 'supported values: "Running", "Suspended"'),
    ],
)
async def test_a_mistake_is_refused_with_what_is_allowed(jobs, spec, message):
    with pytest.raises(ApiError) as refused:
        await jobs.apply(**spec)
    assert refused.value.status == 422
    assert message in refused.value.message


@pytest.mark.parametrize(
    ("name", "message"),
    [("a" * 46, "metadata.name may have at most 45 characters"), ("1st", "must begin with a lower-case letter")],
)
async def test_a_name_that_does_not_fit_is_refused(jobs, name, message):
    with pytest.raises(ApiError, match=message):
        await jobs.apply(name=name)


@pytest.mark.parametrize("memory", ["896Mi", "1Gi", "1.5Gi", "940M", "2G"])
async def test_memory_in_any_unit_is_allowed(jobs, memory):
    await jobs.apply(executor={"memory": memory})


@pytest.mark.parametrize("path", ["orders", "jobs/orders", "..orders", "a/b..c", "jobs/"])
async def test_a_directory_inside_the_volume_is_allowed(jobs, path):
    await jobs.apply(checkpoint={"storage": {"pvc": {"claimName": "c", "subPath": path}}})


async def test_settings_of_the_user_are_allowed(jobs):
    await jobs.apply(sparkConf={"spark.locality.waiting": "x", "spark.sql.shuffle.partitions": "8"})


@pytest.mark.parametrize(
    "storage",
    [{"uri": "s3://bucket/elsewhere"}, {"uri": None, "pvc": {"claimName": "state"}}],
)
async def test_storage_cannot_be_changed(jobs, storage):
    await jobs.apply()
    with pytest.raises(ApiError, match="cannot be changed: the job's state is there"):
        await jobs.change(checkpoint={"storage": storage})


async def test_storage_cannot_be_removed_to_add_another(jobs):
    await jobs.apply()
    with pytest.raises(ApiError, match=r"spec\.checkpoint\.storage is required"):
        await jobs.change(checkpoint={"storage": None})


async def test_credentials_of_the_storage_may_change(jobs):
    await jobs.apply()
    await jobs.change(checkpoint={"storage": {"secretRef": {"name": "rotated"}}})


async def test_scaling_changes_parallelism(jobs, kube, namespace):
    await jobs.apply()
    path = {"metadata": {"name": "orders", "namespace": namespace}, "spec": {"replicas": 6}}
    await kube.replace(STREAMING_JOBS, {"apiVersion": "autoscaling/v1", "kind": "Scale", **path}, "scale")
    assert (await jobs.get())["spec"]["parallelism"] == 6


@pytest.mark.parametrize("backoff", [{"max": "10"}, {"initial": ""}, {"initial": "soon", "max": "1m"}], ids=str)
async def test_a_backoff_that_is_no_duration_is_told_in_one_way_only(jobs, backoff):
    with pytest.raises(ApiError) as refused:
        await jobs.apply(recovery={"backoff": backoff})
    assert "must be a duration with its unit" in refused.value.message
    assert "conversion error" not in refused.value.message
