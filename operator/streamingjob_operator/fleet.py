"""Keeps a cut-off operator from replacing every driver at once."""

from collections import deque
from datetime import datetime, timedelta

MAX_REPLACEMENTS = 3
WITHIN = timedelta(seconds=60)


class Fleet:
    def __init__(self) -> None:
        self._replaced: deque[datetime] = deque(maxlen=MAX_REPLACEMENTS)

    def may_replace_silent_driver(self, now: datetime) -> bool:
        recent = sum(now - moment < WITHIN for moment in self._replaced)
        return recent < MAX_REPLACEMENTS

    def note_replacement(self, now: datetime) -> None:
        self._replaced.append(now)
