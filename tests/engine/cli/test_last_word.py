"""What a driver leaves behind for the operator, which reads it from what Kubernetes keeps of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from snapshot_engine.cli import driver
from snapshot_engine.wire.status import MAX_TERMINATION_MESSAGE_BYTES, Phase, TerminationReport


@pytest.mark.parametrize("letter", ["a", "ж", "字", "😀", '"', "\n", "\x01"])
def test_the_report_can_be_read_whatever_language_an_error_is_in(
    letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kubernetes keeps so many bytes and no more, and half a report is none."""
    place = tmp_path / "termination-log"
    monkeypatch.setattr(driver, "TERMINATION_MESSAGE_PATH", str(place))
    path = "s3://bucket/" + "p" * 1000
    error = "the pipeline cannot be planned: " + letter * 1900
    driver._leave(TerminationReport(phase=Phase.FAILED, checkpoint_path=path, error=error))
    kept = place.read_bytes()
    assert len(kept) <= MAX_TERMINATION_MESSAGE_BYTES
    report = TerminationReport.model_validate_json(kept)
    assert report.checkpoint_path == path and report.error is not None
    assert report.error.startswith("the pipeline cannot be planned: " + letter * 400)


def test_a_short_report_is_left_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "termination-log"
    monkeypatch.setattr(driver, "TERMINATION_MESSAGE_PATH", str(place))
    report = TerminationReport(phase=Phase.FAILED, error="x" * 2000)
    driver._leave(report)
    assert TerminationReport.model_validate_json(place.read_bytes()) == report
