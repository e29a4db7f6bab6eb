"""A stored spec that is gone or damaged is made again where that can be done, and told where it cannot."""

import pytest

from streamingjob_operator import act
from streamingjob_operator.kube import CONFIG_MAPS, PODS


@pytest.fixture
async def running(shell):
    shell.apply()
    await shell.look()
    shell.run_driver()
    await shell.look(2)
    return shell


def lose_driver(shell):
    pod = shell.api.objects[PODS, "shop", shell.status["driver"]["podName"]]
    shell.api.remove(PODS, "shop", pod["metadata"]["name"])
    shell.controller.pod_seen(pod, deleted=True)


def lose_spec(api):
    [name] = api.names(CONFIG_MAPS)
    api.remove(CONFIG_MAPS, "shop", name)


def damage_spec(api):
    [name] = api.names(CONFIG_MAPS)
    api.objects[CONFIG_MAPS, "shop", name]["data"]["job.yaml"] = "spec: {pipeline: 7}"


@pytest.mark.parametrize("harm", [lose_spec, damage_spec])
async def test_the_spec_that_the_job_still_has_is_stored_again(api, running, harm):
    [name] = api.names(CONFIG_MAPS)
    before = api.objects[CONFIG_MAPS, "shop", name]["data"]["job.yaml"]
    harm(api)
    lose_driver(running)
    await running.look()
    assert api.names(PODS) == ["orders-driver-2"] and running.status["driverGeneration"] == 2
    assert api.objects[CONFIG_MAPS, "shop", name]["data"]["job.yaml"] == before


@pytest.mark.parametrize("harm", [lose_spec, damage_spec])
async def test_one_that_the_job_no_longer_has_is_told_and_costs_no_generations(api, running, harm):
    harm(api)
    running.change(parallelism="many")
    lose_driver(running)
    await running.look(12)
    assert running.condition("Ready")["status"] == "False"
    degraded = running.condition("Degraded")
    assert degraded["reason"] == "DriverCannotStart" and "ConfigMap orders-spec-" in degraded["message"]
    assert running.status["driverGeneration"] == 2 and api.names(PODS) == []


async def test_a_damaged_one_that_somebody_holds_on_to_costs_no_generations(api, running, monkeypatch):
    async def hold_on(*_, **__):
        pass

    monkeypatch.setattr(api, "delete", hold_on)
    damage_spec(api)
    lose_driver(running)
    await running.look(12)
    assert running.status["driverGeneration"] == 2
    assert "ConfigMap orders-spec-" in running.condition("Ready")["message"]


async def test_a_changed_spec_is_the_way_out(api, running):
    lose_spec(api)
    running.change(parallelism="many")
    lose_driver(running)
    await running.look(6)
    running.change(parallelism=4)
    await running.look(6)
    assert api.names(PODS) == ["orders-driver-3"]


async def test_a_pod_that_cannot_be_rendered_costs_no_generations(api, running, monkeypatch):
    def fail(*_):
        raise KeyError("novel")

    monkeypatch.setattr(act, "build_driver_pod", fail)
    lose_driver(running)
    await running.look(12)
    assert running.status["driverGeneration"] == 2
    assert "KeyError: 'novel'" in running.condition("Ready")["message"]
