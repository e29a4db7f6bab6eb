"""Where tables go: as wide as the terminal, or as wide as they need for whoever reads them in a pipe."""

from __future__ import annotations

import sys

from rich.console import Console

PIPE_WIDTH = 200
"""Nothing is cut off or left out for whoever reads it with grep."""


def console() -> Console:
    return Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
