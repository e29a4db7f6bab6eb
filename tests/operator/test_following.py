from datetime import UTC, datetime

import pytest

from snapshot_engine.wire.status import CheckpointStatus, ExecutorStatus, JobStatus, Phase, RegionState, RegionStatus
from streamingjob_operator.following import is_transition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BEFORE = JobStatus(
    name="orders",
    generation=1,
    phase=Phase.RUNNING,
    regions=[RegionStatus(id="r0", state=RegionState.RUNNING, attempt=1)],
    executors=[ExecutorStatus(executor_id="1")],
    checkpoint=CheckpointStatus(last_completed_id=7, completed_at=NOW),
)


def test_a_further_checkpoint_is_progress_and_can_wait():
    after = BEFORE.model_copy(update={"checkpoint": CheckpointStatus(last_completed_id=8, completed_at=NOW)})
    assert not is_transition(BEFORE, after)


@pytest.mark.parametrize(
    "changes",
    [
        {"generation": 2},
        {"phase": Phase.RECOVERING},
        {"error": "boom"},
        {"executors": []},
        {"regions": [RegionStatus(id="r0", state=RegionState.RESTORING, attempt=1)]},
        {"regions": [RegionStatus(id="r0", state=RegionState.RUNNING, attempt=2)]},
        {"checkpoint": CheckpointStatus()},
    ],
)
def test_what_cannot_wait(changes):
    assert is_transition(BEFORE, BEFORE.model_copy(update=changes))


def test_the_first_word_of_a_driver_cannot_wait():
    assert is_transition(None, BEFORE)
