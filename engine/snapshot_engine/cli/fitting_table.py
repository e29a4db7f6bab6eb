"""A table that stays readable on a narrow terminal: one line per row, no figure cut off, columns left out instead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

GAP = 2


@dataclass(frozen=True)
class Column:
    header: str
    spare: int = 0
    """Columns with the highest go first where there is no room; 0 stays whatever happens."""
    text: bool = False
    """Words, which may be cut off; everything else is shown whole or not at all."""
    least: int = 12
    """So much of the words is kept, unless no other column is left that may go instead."""
    wraps: bool = False
    """Words that go on in the next line instead."""


@dataclass
class FittingTable:
    columns: Sequence[Column]
    rows: list[Sequence[str]] = field(default_factory=list)

    def add(self, *cells: str) -> None:
        self.rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._shown(options.max_width)
        widths = self._widths(shown, options.max_width)
        table = Table(box=None, header_style="dim", padding=(0, GAP, 0, 0), pad_edge=False)
        for number in shown:
            column = self.columns[number]
            wraps = column.wraps and widths[number] < self._natural(number)
            table.add_column(column.header, width=widths[number], no_wrap=not wraps, overflow="ellipsis")
        for row in self.rows:
            table.add_row(*(row[number] if number < len(row) else "" for number in shown))
        yield table

    def _shown(self, room: int) -> list[int]:
        shown = list(range(len(self.columns)))
        while self._least(shown) > room:
            spare = max(shown, key=lambda number: self.columns[number].spare)
            if self.columns[spare].spare == 0:
                break
            shown.remove(spare)
        return shown

    def _least(self, shown: Sequence[int]) -> int:
        return sum(map(self._least_of, shown)) + GAP * (len(shown) - 1)

    def _least_of(self, number: int) -> int:
        column, natural = self.columns[number], self._natural(number)
        return min(natural, column.least) if column.text else natural

    def _widths(self, shown: Sequence[int], room: int) -> dict[int, int]:
        """Text gives up what is too much, the longest first."""
        widths = {number: self._natural(number) for number in shown}
        too_much = sum(widths.values()) + GAP * (len(shown) - 1) - room
        for number in sorted((n for n in shown if self.columns[n].text), key=lambda n: -widths[n]):
            given = max(0, min(too_much, widths[number] - cell_len(self.columns[number].header)))
            widths[number] -= given
            too_much -= given
        return widths

    def _natural(self, number: int) -> int:
        cells = (row[number] for row in self.rows if number < len(row))
        return max(cell_len(self.columns[number].header), *map(cell_len, cells), 1)
