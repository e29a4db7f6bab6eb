"""Where a scenario leaves its figures for the report: a list of rows, flat dictionaries. Each tells when it was
measured and of which commit. Standard library only."""

import json
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from benchmarks.paths import OUT, REPOSITORY


def keep_figures(name: str, rows: Sequence[dict[str, Any]]) -> None:
    """Written after each row: an interrupted scenario loses nothing."""
    OUT.mkdir(parents=True, exist_ok=True)
    origin = {"measured": f"{datetime.now(UTC):%Y-%m-%d %H:%M}", "commit": commit()}
    (OUT / f"{name}.json").write_text(json.dumps([{**row, **origin} for row in rows], indent=1))


def commit() -> str:
    """Short; with a plus where files differ from it."""
    told = subprocess.run(
        ["git", "describe", "--always", "--dirty=+"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "unknown"
