"""How `run` ends: what a script can tell from its exit code."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from snapshot_engine.cli.run import _tell
from snapshot_engine.runtime.job_result import JobResult, Outcome


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (JobResult(Outcome.FINISHED), 0),
        (JobResult(Outcome.STOPPED), 0),
        (JobResult(Outcome.STOPPED, cut_short=True), 130),
        (JobResult(Outcome.FAILED), 64),
    ],
    ids=str,
)
def test_a_stop_without_its_last_checkpoint_is_no_clean_stop(result: JobResult, code: int) -> None:
    assert _tell(result, Mock()) == code
