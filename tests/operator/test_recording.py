from datetime import UTC, datetime, timedelta

from streamingjob_operator.recording import is_worth_writing
from streamingjob_operator.resource import CheckpointSummary, JobPhase, StreamingJobStatus

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def status(checkpoint, phase=JobPhase.RUNNING):
    return StreamingJobStatus(phase=phase, checkpoint=CheckpointSummary(last_completed_id=checkpoint))


def test_nothing_new_is_not_written():
    assert not is_worth_writing(status(7), status(7), None, NOW)


def test_a_transition_is_written_at_once():
    assert is_worth_writing(status(7), status(7, JobPhase.RECOVERING), NOW, NOW)


def test_the_first_checkpoint_is_written_at_once():
    assert is_worth_writing(status(None), status(1), NOW, NOW)


def test_progress_is_written_every_fifteen_seconds():
    assert not is_worth_writing(status(7), status(8), NOW, NOW + timedelta(seconds=14))
    assert is_worth_writing(status(7), status(22), NOW, NOW + timedelta(seconds=15))
