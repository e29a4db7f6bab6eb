"""What planning finds wrong with a pipeline: all of it at once, each with the operator and its line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from snapshot_engine.graph.job_graph import SourceLocation


@dataclass(frozen=True)
class Problem:
    """One thing to change in the user's file, or to know about it."""

    message: str
    operator: str | None = None
    """The name of the operator concerned, as the user knows it; None where the job as a whole is."""
    location: SourceLocation | None = None

    def __str__(self) -> str:
        where = f"{self.location}: " if self.location else ""
        who = f"{self.operator!r}: " if self.operator else ""
        return f"{where}{who}{self.message}"


class PlanError(Exception):
    """The pipeline cannot be planned. `problems` has everything that was found, in the order of the user's
    file."""

    def __init__(self, job: str, problems: Sequence[Problem]) -> None:
        self.job = job
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        lines = "\n".join(f"  - {_indent(str(problem))}" for problem in self.problems)
        super().__init__(f"the pipeline of {job!r} cannot be planned: {count}\n{lines}")


def _indent(text: str) -> str:
    return text.replace("\n", "\n    ")
