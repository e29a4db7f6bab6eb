"""The driver in its pod, as far as it needs no Spark: what it was told, planning, and removing a job's state."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from snapshot_engine.cli import driver as command
from snapshot_engine.runtime import driver
from snapshot_engine.runtime.starting_checkpoint import refuse_lost_checkpoints
from snapshot_engine.storage.errors import LostCheckpoints
from snapshot_engine.storage.local import LocalBlobs
from snapshot_engine.storage.manifest import Manifest
from snapshot_engine.wire import control
from snapshot_engine.wire.control import Environment
from snapshot_engine.wire.status import ExitCode

SOURCE = """
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink

def pipeline(env):
    env.from_source(bids(keys=10, count=1000), uid="bids").sink_to(DiscardSink(), uid="out")
"""


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes the files that are mounted into a driver pod; returns where its termination report is."""
    last_word = tmp_path / "termination-log"
    monkeypatch.setattr(control, "MANIFEST_PATH", str(tmp_path / "job.yaml"))
    monkeypatch.setattr(control, "PIPELINE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(command, "TERMINATION_MESSAGE_PATH", str(last_word))

    def mount(**spec: Any) -> Path:
        job = {
            "apiVersion": "streamingjob.dev/v1alpha1",
            "kind": "StreamingJob",
            "metadata": {"name": "orders", "namespace": "shop", "uid": "uid-1"},
            "spec": {
                "pipeline": {"source": SOURCE},
                "checkpoint": {"storage": {"uri": f"file://{tmp_path}/ck"}},
                **spec,
            },
        }
        Path(control.MANIFEST_PATH).write_text(yaml.safe_dump(job))
        return last_word

    return mount


def _report(last_word: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(last_word.read_text())
    return report


def test_the_operators_word_about_what_to_restore_counts_and_not_what_was_left_in_the_spec(pod: Any) -> None:
    pod(restoreFrom="an-old-one")
    told = {Environment.GENERATION: "4", Environment.RESTORE_ID: "x", Environment.RESTORE_FROM: "upgrade-3"}
    job = driver.load_job()
    settings = driver.settings_for(job, driver.Launch.from_environment({str(k): v for k, v in told.items()}))
    assert (settings.driver, settings.restore_id) == (4, "x")
    assert settings.restore_from == "savepoints/upgrade-3"
    assert settings.take_over
    plain = driver.settings_for(job, driver.Launch.from_environment({str(Environment.GENERATION): "5"}))
    assert plain.restore_from is None
    assert not plain.take_over


def test_a_spec_that_an_earlier_release_took_is_run(pod: Any) -> None:
    """The operator has judged it."""
    pod(driver={"memory": "512Mi"})
    assert driver.load_job().spec.driver.memory == 512 * 2**20


def test_a_pipeline_that_can_be_planned_is_told_by_exit_code_0(pod: Any) -> None:
    last_word = pod()
    assert command.check() == ExitCode.FINISHED
    assert _report(last_word)["phase"] == "Finished"


def test_a_pipeline_in_a_config_map_is_read_from_its_file(pod: Any, tmp_path: Path) -> None:
    pod(pipeline={"configMap": {"name": "code", "key": "orders.py"}})
    (tmp_path / "orders.py").write_text(SOURCE)
    assert command.check() == ExitCode.FINISHED


def test_a_pipeline_that_cannot_be_planned_leaves_the_reason_in_the_termination_report(pod: Any) -> None:
    last_word = pod(pipeline={"source": "def pipeline(env):\n    env.no_such_step()\n"})
    assert command.check() == ExitCode.INVALID_PIPELINE
    assert "no_such_step" in _report(last_word)["error"]


def test_a_mistake_in_the_code_itself_is_told_with_its_line(pod: Any) -> None:
    last_word = pod(pipeline={"source": "import nowhere_to_be_found\n\ndef pipeline(env): ...\n"})
    assert command.check() == ExitCode.INVALID_PIPELINE
    assert "nowhere_to_be_found" in _report(last_word)["error"]


@pytest.fixture
def other_state(pod: Any) -> Any:
    """The storage holds a checkpoint that does not fit the pipeline, and a savepoint that does."""
    pod()
    job = driver.load_job()
    store = driver.open_job_store(driver.settings_for(job, driver.Launch.from_environment({})))
    store.acquire("uid-1")
    store.complete(_manifest(store, key_groups=64), retained=3)
    store.complete_savepoint(_manifest(store, key_groups=128), "fits")
    return store


def _manifest(store: Any, key_groups: int) -> Manifest:
    return Manifest(
        checkpoint=store.next_checkpoint_id(),
        generation=store.generation,
        job="orders",
        job_uid="uid-1",
        triggered_at=0.0,
        completed_at=1.0,
        key_groups=key_groups,
        vertices={},
        critical_path=(),
    )


def test_a_pipeline_that_does_not_fit_the_state_is_refused_before_anything_is_stopped(
    pod: Any, other_state: Any
) -> None:
    last_word = pod()
    assert command.check() == ExitCode.UNREADABLE_STATE
    assert "has 64 key groups, the job now 128" in _report(last_word)["error"]


@pytest.mark.parametrize("stored", ["Savepoint", "Stateless"])
def test_the_state_is_left_out_when_the_operator_says_so_whatever_mode_was_stored(
    pod: Any, other_state: Any, monkeypatch: pytest.MonkeyPatch, stored: str
) -> None:
    pod(upgradeMode=stored)
    monkeypatch.setenv(Environment.IGNORE_STATE, "true")
    assert command.check() == ExitCode.FINISHED
    monkeypatch.setenv(Environment.IGNORE_STATE, "false")
    assert command.check() == ExitCode.UNREADABLE_STATE


def test_an_operator_that_says_nothing_about_the_state_leaves_it_to_the_stored_mode(pod: Any, other_state: Any) -> None:
    pod(upgradeMode="Stateless")
    assert command.check() == ExitCode.FINISHED


def test_a_pipeline_is_compared_with_the_state_that_it_is_to_start_from(
    pod: Any, other_state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_word = pod()
    monkeypatch.setenv(Environment.RESTORE_FROM, "fits")
    assert command.check() == ExitCode.FINISHED
    monkeypatch.setenv(Environment.RESTORE_FROM, "no-such-savepoint")
    assert command.check() == ExitCode.UNREADABLE_STATE
    assert "no-such-savepoint" in _report(last_word)["error"]


TWO_REGIONS = """
from snapshot_engine.connectors.bids import bids
from snapshot_engine.connectors.discard import DiscardSink

def pipeline(env):
    bid = env.from_source(bids(keys=10, count=1000), uid="bids")
    bid.exchange("committed").sink_to(DiscardSink(), uid="out")
"""


@pytest.mark.parametrize("command_of", [command.check, command.drive])
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"parallelism": 4, "executor": {"instances": 1}}, ("4 slots", "instances: 1", "at least 4")),
        ({"parallelism": 5, "executor": {"instances": 2, "cores": 2}}, ("5 slots", "cores: 2", "at least 3")),
        ({"parallelism": 4, "executor": {"instances": 3, "standby": 4}}, ("4 slots", "standby", "at least 4")),
        (
            {"parallelism": 2, "executor": {"instances": 2}, "pipeline": {"source": TWO_REGIONS}},
            ("4 slots", "instances: 2", "at least 4"),
        ),
    ],
)
def test_executors_that_can_never_hold_the_job_are_refused_before_anything_is_stopped(
    pod: Any, command_of: Any, spec: dict[str, Any], said: tuple[str, ...]
) -> None:
    last_word = pod(**spec)
    assert command_of() == ExitCode.INVALID_PIPELINE
    error = _report(last_word)["error"]
    assert all(part in error for part in said), error
    assert "executor.instances" in error and "executor.cores" in error and "parallelism" in error


@pytest.mark.parametrize("executor", [{}, {"instances": 4}, {"instances": 2, "cores": 2}, {"cores": 3}])
def test_executors_that_can_hold_the_job_are_taken(pod: Any, executor: dict[str, int]) -> None:
    pod(parallelism=2, pipeline={"source": TWO_REGIONS}, executor=executor)
    assert command.check() == ExitCode.FINISHED


def test_a_driver_whose_predecessors_completed_checkpoints_takes_no_empty_storage(
    pod: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    last_word = pod()
    monkeypatch.setenv(Environment.GENERATION, "5")
    monkeypatch.setenv(Environment.EXPECTED_CHECKPOINT, "file:///mnt/ck/shop/orders/checkpoints/7-1")
    assert command.drive() == ExitCode.UNREADABLE_STATE
    error = _report(last_word)["error"]
    assert "file:///mnt/ck/shop/orders/checkpoints/7-1" in error, "what was expected"
    assert f"{tmp_path}/ck/shop/orders" in error, "where it looked"
    assert "restartNonce" in error and "restoreFrom" in error and "upgradeMode: Stateless" in error, "what to do"
    assert not list(LocalBlobs(str(tmp_path / "ck")).list("shop/orders")), "nothing is in the way of what is put back"


@pytest.mark.parametrize("restore", [{}, {Environment.RESTORE_ID: "s", Environment.IGNORE_STATE: "true"}])
def test_no_line_of_drivers_begins_anew_when_its_storage_is_gone(pod: Any, restore: dict[str, str]) -> None:
    pod()
    told = {str(key): said for key, said in restore.items()} | {str(Environment.EXPECTED_CHECKPOINT): "s3://b/7-1"}
    settings = driver.settings_for(driver.load_job(), driver.Launch.from_environment(told))
    store = driver.open_job_store(settings)
    with pytest.raises(LostCheckpoints):
        refuse_lost_checkpoints(settings, store)
    store.acquire("uid-1")
    with pytest.raises(LostCheckpoints):
        refuse_lost_checkpoints(settings, store)
    store.complete(_manifest(store, key_groups=128), retained=3)
    refuse_lost_checkpoints(settings, store)


def test_a_driver_that_is_told_nothing_may_start_from_nothing(pod: Any) -> None:
    pod()
    settings = driver.settings_for(driver.load_job(), driver.Launch.from_environment({}))
    refuse_lost_checkpoints(settings, driver.open_job_store(settings))


def test_removing_the_state_of_a_job_leaves_what_is_not_its_own(pod: Any, tmp_path: Path) -> None:
    pod()
    job = driver.load_job()
    store = driver.open_job_store(driver.settings_for(job, driver.Launch.from_environment({})))
    store.acquire("uid-2")
    assert command.clean() == ExitCode.FINISHED
    assert store.list() == ()
    assert list(LocalBlobs(str(tmp_path / "ck")).list("shop/orders")), "the state of a newer job of that name stays"
    store.acquire("uid-1", take_over=True)
    assert command.clean() == ExitCode.FINISHED
    assert not list(LocalBlobs(str(tmp_path / "ck")).list("shop/orders"))
