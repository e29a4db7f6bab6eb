"""Where a scenario leaves its figures for the report: a list of rows, flat dictionaries. Standard library only."""

import json
from collections.abc import Sequence
from typing import Any

from benchmarks.paths import OUT


def keep_figures(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Written after each row: an interrupted scenario loses nothing."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(list(rows), indent=1))
