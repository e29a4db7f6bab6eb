"""What Spark is told on Kubernetes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from snapshot_engine.runtime.executor_count import executors_for
from snapshot_engine.runtime.spark_settings import DriverPod, kubernetes_settings, split_executor_memory
from snapshot_engine.wire.spark_conf import why_refused
from snapshot_engine.wire.spec import MIB, MIN_EXECUTOR_MEMORY, StreamingJob

POD = DriverPod("orders-driver-3", "10.1.2.3", 3)


def _settings(
    name: str = "orders",
    template: dict[str, Any] | None = None,
    needed: int = 1,
    pod: DriverPod = POD,
    **spec: Any,
) -> dict[str, str]:
    job = {
        "metadata": {"name": name, "namespace": "shop", "uid": "u"},
        "spec": {"image": "engine:1", "pipeline": {"entrypoint": "jobs:main"}, **spec},
    }
    read = StreamingJob.model_validate(job)
    return kubernetes_settings(read, pod, template or {}, executors_for(read.spec, needed))


def test_the_reserve_comes_on_top_of_the_instances() -> None:
    assert _settings(executor={"instances": 3, "standby": 2})["spark.executor.instances"] == "5"
    assert _settings(parallelism=5, executor={"cores": 2})["spark.executor.instances"] == "3"


def test_as_many_executors_are_asked_for_as_the_job_needs() -> None:
    two_regions = {"parallelism": 5, "needed": 10}
    assert _settings(**two_regions)["spark.executor.instances"] == "10"
    assert _settings(**two_regions, executor={"cores": 3, "standby": 1})["spark.executor.instances"] == "5"


def test_executors_find_the_driver_by_its_own_address_and_belong_to_its_pod() -> None:
    settings = _settings()
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "10.1.2.3"
    assert settings["spark.kubernetes.driver.pod.name"] == "orders-driver-3"
    assert settings["spark.kubernetes.executor.label.streamingjob.dev/generation"] == "3"


def test_the_heap_and_the_rest_make_up_the_whole_pod() -> None:
    settings = _settings(executor={"memory": "2Gi"})
    assert (settings["spark.executor.memory"], settings["spark.executor.memoryOverhead"]) == ("512m", "1536m")


def test_the_least_memory_is_just_enough_for_both_parts() -> None:
    heap, rest = split_executor_memory(MIN_EXECUTOR_MEMORY * MIB)
    assert heap + rest == MIN_EXECUTOR_MEMORY


@pytest.mark.parametrize("gib", [1, 2, 8, 64])
def test_the_slots_get_most_of_the_memory(gib: int) -> None:
    heap, rest = split_executor_memory(gib * 1024 * MIB)
    assert heap + rest == gib * 1024
    assert rest >= heap


def test_names_stay_within_what_kubernetes_allows() -> None:
    prefix = _settings(name="a" * 45)["spark.kubernetes.executor.podNamePrefix"]
    assert len(f"{prefix}-exec-1234567890") <= 63


def test_executors_of_two_jobs_are_never_called_alike() -> None:
    """Also if the jobs' names are too long for the generation, and differ in their last letter only."""
    late = dataclasses.replace(POD, generation=1234)
    jobs = [_settings(name="a" * 44 + letter, pod=late) for letter in "bc"]
    prefixes = {settings["spark.kubernetes.executor.podNamePrefix"] for settings in jobs}
    assert len(prefixes) == 2
    assert all(prefix.endswith("-1234") and len(f"{prefix}-exec-1234567890") <= 63 for prefix in prefixes)


def test_processors_that_a_template_asks_for_are_asked_of_spark() -> None:
    resources = {"requests": {"cpu": "250m"}, "limits": {"cpu": 2}}
    settings = _settings(template={"spec": {"containers": [{"name": "executor", "resources": resources}]}})
    assert settings["spark.kubernetes.executor.request.cores"] == "250m"
    assert settings["spark.kubernetes.executor.limit.cores"] == "2"


@pytest.mark.parametrize("resources", [None, {"requests": None}, {"limits": None}])
def test_an_empty_block_of_resources_is_as_good_as_none(resources: Any) -> None:
    settings = _settings(template={"spec": {"containers": [{"name": "executor", "resources": resources}]}})
    assert not any(name.endswith(("request.cores", "limit.cores")) for name in settings)


def test_an_executor_is_judged_by_its_own_container_and_not_by_a_sidecar() -> None:
    assert _settings()["spark.kubernetes.executor.checkAllContainers"] == "false"


def test_what_the_engine_sets_a_user_cannot_set() -> None:
    mine = {key for key in _settings() if not key.startswith("spark.ui.")}
    users = {key for key in mine if why_refused(key) is None}
    assert users == set()
