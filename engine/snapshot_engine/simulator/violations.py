"""What must never happen."""

from __future__ import annotations


class Violation(Exception):
    """A promise of the protocols was broken: a record lost or doubled, a cut that is none, a job that is
    stuck.
    """
