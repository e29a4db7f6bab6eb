"""Windows cut into panes: the pieces of time that no window border crosses. A row belongs to one pane only.

A tumbling window is one pane; a sliding one has as many as its size holds the greatest common divisor of size and
slide. Times are epoch milliseconds; a pane or window is named by its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from snapshot_engine.kernels.ordering import LANES, sort_by_destination
from snapshot_engine.kernels.pane_numbers import number_panes
from snapshot_engine.kernels.partition import reorder
from snapshot_engine.operators.windows import SlidingWindow, TumblingWindow

_MOST_PANES_COUNTED = 4096


@dataclass(frozen=True)
class PaneGrid:
    size: int
    """Of a window."""
    slide: int
    offset: int
    pane: int
    lateness: int

    @classmethod
    def of(cls, window: TumblingWindow | SlidingWindow, lateness_ms: int) -> PaneGrid:
        slide = window.slide_ms if isinstance(window, SlidingWindow) else window.size_ms
        if window.size_ms <= 0 or slide <= 0:
            raise ValueError(f"{window}: size and slide must be at least one millisecond")
        return cls(window.size_ms, slide, window.offset_ms, gcd(window.size_ms, slide), lateness_ms)

    def pane_of(self, time: int) -> int:
        return (time - self.offset) // self.pane * self.pane + self.offset

    def windows_of(self, pane: int) -> range:
        """The windows that the pane is part of, oldest first; none where windows leave gaps between them."""
        last = (pane - self.offset) // self.slide * self.slide + self.offset
        # The oldest start is the first one of the grid that is greater than pane - size.
        first = (pane - self.size - self.offset) // self.slide * self.slide + self.offset + self.slide
        return range(first, last + 1, self.slide)

    def panes_of(self, window: int) -> range:
        return range(window, window + self.size, self.pane)

    def due(self, window: int, watermark: int) -> bool:
        """Whether the watermark has passed the window's last millisecond."""
        return window + self.size - 1 <= watermark

    def closed(self, window: int, watermark: int) -> bool:
        """Whether nothing can change the window any more, late rows included."""
        return window + self.size - 1 + self.lateness <= watermark

    def expired(self, pane: int, watermark: int) -> bool:
        """Whether no window of the pane will ever be put out (again): its rows are late, its state can go."""
        windows = self.windows_of(pane)
        return not windows or self.closed(windows[-1], watermark)

    def windows_due(self, panes: Iterable[int], before: int, watermark: int) -> list[int]:
        """The windows with panes among these that a watermark passes which was at `before`, oldest first."""
        return sorted(
            {
                window
                for pane in panes
                for window in self.windows_of(pane)
                if self.due(window, watermark) and not self.due(window, before)
            }
        )

    def split(self, batch: pa.RecordBatch, times: npt.NDArray[np.int64]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batch's rows by pane, in the order of the panes."""
        if len(times) == 0:
            return
        first, last = self.pane_of(int(times.min())), self.pane_of(int(times.max()))
        if first == last:
            yield first, batch
            return
        numbers, counts, order = self._order(times, first, (last - first) // self.pane + 1)
        sorted_batch = reorder(batch, order)
        start = 0
        for number, count in zip(numbers, counts, strict=True):
            yield first + number * self.pane, sorted_batch.slice(start, count)
            start += count

    def _order(
        self, times: npt.NDArray[np.int64], first: int, span: int
    ) -> tuple[list[int], list[int], npt.NDArray[np.uint32]]:
        """The numbers of the panes that have rows, how many each has, and the rows in that order."""
        if span > _MOST_PANES_COUNTED:
            panes = (times - first) // self.pane
            order = np.argsort(panes, kind="stable").astype(np.uint32)
            numbers, counts = np.unique(panes, return_counts=True)
            return numbers.tolist(), counts.tolist(), order
        destinations = np.empty(len(times), np.uint16)
        lane_counts = np.zeros((LANES, span), np.int64)
        number_panes(times, first, self.pane, destinations, lane_counts)
        order = np.empty(len(times), np.uint32)
        sort_by_destination(destinations, lane_counts, order)
        totals = lane_counts.sum(axis=0)
        present = np.flatnonzero(totals)
        return present.tolist(), totals[present].tolist(), order
