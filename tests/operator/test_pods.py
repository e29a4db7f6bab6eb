"""What is read from pods as the API server gives them."""

from streamingjob_operator.pods import view_pod


def ended_pod(message):
    ended = {"exitCode": 1, "reason": "Error", "message": message}
    metadata = {"name": "orders-driver-1", "uid": "u", "creationTimestamp": "2026-01-01T12:00:00Z"}
    return {
        "metadata": metadata,
        "status": {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]},
    }


def test_of_a_crash_the_last_line_is_shown_whole():
    """Kubernetes gives the end of the log, cut anywhere."""
    view = view_pod(ended_pod("nine 7, in f\n    g()\nZeroDivisionError: division by zero\n"))
    assert view.exit is not None and view.exit.message == "ZeroDivisionError: division by zero"


def test_a_crash_without_a_word_has_no_message():
    view = view_pod(ended_pod(""))
    assert view.exit is not None and view.exit.message == ""
