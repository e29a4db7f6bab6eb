"""What is wrong when a checkpoint's state and the job's do not go together."""

from __future__ import annotations


class UnfitState(Exception):
    """What a checkpoint holds is not what the pipeline keeps. No restart changes that."""


class RecordStateChanged(UnfitState):
    """The checkpoint holds keyed state under another type, or under a name that is not declared any more."""
