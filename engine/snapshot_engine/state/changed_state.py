"""What is wrong when a checkpoint's keyed state and the job's do not go together."""

from __future__ import annotations


class RecordStateChanged(Exception):
    """The checkpoint holds keyed state under another type, or under a name that is not declared any more."""
