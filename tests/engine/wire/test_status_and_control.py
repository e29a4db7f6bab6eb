import pytest
from pydantic import ValidationError

from snapshot_engine.wire.control import (
    PodLostRequest,
    SavepointRequest,
    StatusResponse,
    StopMode,
    StopRequest,
)
from snapshot_engine.wire.status import JobStatus, PathStep, Phase, RegionState, TerminationReport

REPORT = {
    "version": 1,
    "name": "orders",
    "generation": 3,
    "applicationId": "spark-1",
    "phase": "Running",
    "regions": [{"id": "r0", "vertices": ["source", "map"], "state": "Running", "attempt": 2, "restarts": 1}],
    "checkpoint": {"lastCompletedId": 7, "completedAt": "2026-01-01T00:00:00Z", "inProgress": [8]},
    "executors": [{"executorId": "1", "podName": "orders-exec-1", "regions": ["r0"]}],
}


def test_a_report_is_read_by_the_names_of_the_wire() -> None:
    status = JobStatus.model_validate(REPORT)
    assert status.application_id == "spark-1"
    assert status.regions[0].state is RegionState.RUNNING
    assert status.checkpoint.last_completed_id == 7
    assert JobStatus.model_validate(status.to_wire()) == status


def test_fields_and_values_of_a_newer_release_do_no_harm() -> None:
    newer = {
        **REPORT,
        "mood": "fine",
        "phase": "Rebalancing",
        "regions": [{"id": "r0", "state": "Warming", "heat": 3}],
    }
    status = JobStatus.model_validate(newer)
    assert status.phase is Phase.UNKNOWN
    assert status.regions[0].state is RegionState.UNKNOWN


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        JobStatus.model_validate({"name": "a", "startedAt": "2026-01-01T00:00:00"})


def test_the_asynchronous_part_is_called_async_on_the_wire() -> None:
    assert PathStep(subtask="map#0", async_=0.5).to_wire()["async"] == 0.5


def test_a_loss_is_named_by_generation_application_executor_and_pod() -> None:
    request = PodLostRequest(generation=1, application_id="a", executor_id="2", pod_uid="u", reason="PodGone")
    assert request.to_wire() == {
        "generation": 1,
        "applicationId": "a",
        "executorId": "2",
        "podUid": "u",
        "reason": "PodGone",
        "message": "",
    }


def test_stopping_with_a_savepoint_needs_its_name() -> None:
    with pytest.raises(ValidationError, match="mode savepoint needs a name"):
        StopRequest(mode=StopMode.SAVEPOINT)
    assert StopRequest(mode=StopMode.CANCEL).name is None


@pytest.mark.parametrize("name", ["", "../other", "A", "a/b", "-a", "a" * 200])
def test_a_savepoint_name_that_is_no_directory_name_is_refused(name: str) -> None:
    with pytest.raises(ValidationError):
        SavepointRequest(name=name)


def test_a_status_response_carries_its_revision() -> None:
    assert StatusResponse.model_validate({"revision": 4, "status": REPORT}).status.name == "orders"


def test_a_sender_that_keeps_longer_lists_is_understood() -> None:
    """How much it tells is its own business: the next release may tell more."""
    entry = {"id": 1, "outcome": "Completed", "triggeredAt": "2026-01-01T00:00:00Z"}
    restart = {"region": "r0", "cause": "SlotLost", "failedAt": "2026-01-01T00:00:00Z"}
    said = {
        "name": "orders",
        "checkpoint": {"history": [entry] * 500},
        "restartHistory": [restart] * 500,
        "savepoints": [{"name": f"s{n}", "state": "Completed"} for n in range(500)],
    }
    status = JobStatus.model_validate(said)
    assert len(status.checkpoint.history) == len(status.restart_history) == len(status.savepoints) == 500
    assert TerminationReport.model_validate({"phase": "Failed", "error": "x" * 3000}).error == "x" * 3000
