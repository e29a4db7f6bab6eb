"""What goes wrong, and how often it did. All of it is drawn from the schedule's seed, within a budget."""

from __future__ import annotations

from collections import Counter
from random import Random

LOSSY_CHECKPOINTS = ("ack", "decline", "trigger", "abort", "completed")
LOSSY_LOOPS = ("wave", "counts", "round", "round_end", "final_watermark", "end_loop")
LOSSY = frozenset({*LOSSY_CHECKPOINTS, *LOSSY_LOOPS})
"""Messages that may be lost: each has something that makes up for it (a timeout, a newer barrier, the next
one).
"""


class Faults:
    def __init__(self, random: Random, budget: int, bad_swaps: float = 0.12) -> None:
        """`bad_swaps`: how many of the swaps of `current` do not simply land and are answered."""
        self._random = random
        self._bad_swaps = bad_swaps
        self.left = budget
        self.counts: Counter[str] = Counter()

    def happens(self, kind: str, chance: float) -> bool:
        if self.left <= 0 or self._random.random() >= chance:
            return False
        self.left -= 1
        self.counts[kind] += 1
        return True

    def snapshot_write_fails(self) -> bool:
        return self.happens("snapshot write failed", 0.01)

    def copies(self, kind: str) -> int:
        """How often a message arrives: 0, 1 or 2 times."""
        if self.left <= 0:
            return 1
        if kind in LOSSY and self.happens("message lost", 0.015):
            return 0
        return 2 if self.happens("message doubled", 0.015) else 1

    def swap_outcome(self) -> str:
        """What the store does with a swap, and what it says."""
        if self.left <= 0 or self._random.random() >= self._bad_swaps:
            return "answered"
        outcome = self._random.choice(("landed silently", "lands later", "lost", "failed"))
        self.left -= 1
        self.counts[f"swap {outcome}"] += 1
        return outcome
