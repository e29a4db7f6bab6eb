"""How many rows a subtask takes in hand at a time: so many as are done within some 50 ms, whatever is done with them.

Between two slices the slot says that it is alive, hears the driver, and runs its other subtasks. A user's function that
is slow must not look like a slot that hangs, and a barrier must not wait for seconds behind one batch. Where rows are
quick, whole batches are taken: the first few slices of an attempt are all that is lost.
"""

from __future__ import annotations

ENOUGH_SECONDS = 0.05
MOST_ROWS = 1 << 20
QUICK_GROWTH = 16
"""After a slice that was quick: more would rest on too few rows, which may have been lucky ones."""
SLOW_GROWTH = 2
LARGEST_CUT = 4
OTHER_SIZE = 1.5
"""Two slices whose sizes differ by this factor tell what a row costs, and what a call does without any."""
PATIENCE_SECONDS = 2.0


class TimedSize:
    """In rows; follows what the slices before took."""

    def __init__(self, patience: float = PATIENCE_SECONDS) -> None:
        """A row that takes longer than `patience` is never tried together with a second one."""
        self.rows = 1
        self._patience = patience
        self._before: tuple[int, float] | None = None

    def took(self, rows: int, seconds: float) -> None:
        """A slice of `rows` (fewer than `self.rows` at the end of a batch) took so long."""
        self.rows = self._after_slow(rows, seconds) if seconds > ENOUGH_SECONDS else self._after_quick(rows, seconds)
        self._before = rows, seconds

    def _after_quick(self, rows: int, seconds: float) -> int:
        fitting = rows * ENOUGH_SECONDS / max(seconds, 1e-9)
        return int(min(fitting, max(self.rows, rows * QUICK_GROWTH), MOST_ROWS))

    def _after_slow(self, rows: int, seconds: float) -> int:
        price = self._price_of_a_row(rows, seconds)
        if price is None and rows == 1 and seconds < self._patience:
            return 2  # or it would never be known whether it is the row or the call that takes the time
        if price is None:
            price = seconds / rows
        most = min(rows * SLOW_GROWTH, MOST_ROWS)
        fitting = most if price * most <= ENOUGH_SECONDS else int(ENOUGH_SECONDS / price)
        return max(1, rows // LARGEST_CUT, fitting)

    def _price_of_a_row(self, rows: int, seconds: float) -> float | None:
        """What each further row costs; None if the slice before was of much the same size.

        A function that is called for a whole batch may take its time for the call itself: then smaller slices gain
        nothing, and must not become smaller still.
        """
        if self._before is None:
            return None
        other_rows, other_seconds = self._before
        if max(rows, other_rows) < OTHER_SIZE * min(rows, other_rows):
            return None
        return max(0.0, (seconds - other_seconds) / (rows - other_rows))
