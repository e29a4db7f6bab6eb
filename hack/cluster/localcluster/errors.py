"""The one error of this package: written for the person at the prompt, printed without a traceback."""


class ClusterError(Exception):
    """What is wrong, and what to do about it."""

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}\n  {remedy}" if remedy else problem)
