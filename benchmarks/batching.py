"""How many rows a micro-batch gets: as many as are done in the time between two checkpoints of the other engines.

Small batches are mostly fixed costs, and a batch is what an engine of micro-batches has for a checkpoint.
"""

from benchmarks.settings import Run

WITHOUT_CHECKPOINTS_SECONDS = 5.0
LEAST_ROWS = 100_000


def batch_rows_for(run: Run) -> int | None:
    """By the quickest of a run's largest batches; None for engines that have no batches."""
    told = run.facts.get("checkpoints", {})
    batches = [(rows, ms) for rows, ms in zip(told.get("batch_rows", ()), told.get("batch_ms", ()), strict=True) if ms]
    if not batches:
        return None
    rows = max(rows for rows, _ in batches)
    milliseconds = min(ms for of, ms in batches if of == rows)  # others were held up by what is no work of theirs
    wanted = run.checkpoint_interval_ms or WITHOUT_CHECKPOINTS_SECONDS * 1000
    return max(LEAST_ROWS, int(round(rows / milliseconds * wanted, -5)))
