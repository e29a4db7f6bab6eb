"""Open sessions per key, each with a row of accumulators. Keys without any session are forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from snapshot_engine.kernels.arrow_views import Rows, Words
from snapshot_engine.kernels.sessions import (
    LIVE_KEYS,
    USED,
    assign_sessions,
    free_slots,
    link_sessions,
    remove_sessions,
    remove_sessions_of_keys,
    sessions_ending,
)
from snapshot_engine.protocol.elements import MAX_WATERMARK
from snapshot_engine.state.encoded_keys import EncodedKeys
from snapshot_engine.state.key_codec import KeyCodec
from snapshot_engine.state.key_index import key_index

Matrix = npt.NDArray[np.int64]

_FEW_KEYS = 10_000
"""So many keys without a session are not worth forgetting."""


@dataclass(frozen=True, slots=True)
class FrozenSessions:
    """Sessions at a barrier: for each its key's row, the times of its first and last row, its accumulators."""

    all_keys: EncodedKeys
    owners: Rows
    firsts: Words
    lasts: Words
    values: Matrix

    def __len__(self) -> int:
        return len(self.owners)


class SessionTable:
    def __init__(self, codec: KeyCodec, initial: Words, gap: int) -> None:
        self._codec = codec
        self._initial = initial
        self._gap = gap
        self._keys = key_index(codec)
        self._heads = np.full(self._keys.capacity, -1, np.int32)
        self._changed = np.zeros(self._keys.capacity, np.int64)
        """Per key: the epoch of the last change to any of its sessions."""
        self._counts = np.zeros(3, np.int64)
        self._owners = np.full(64, -1, np.int32)
        self._nexts = np.full(64, -1, np.int32)
        self._free = np.empty(64, np.int32)
        self.firsts = np.empty(64, np.int64)
        self.lasts = np.empty(64, np.int64)
        self.matrix = np.empty((64, len(initial)), np.int64)
        self._earliest_end = MAX_WATERMARK
        """No open session ends before."""

    @property
    def size(self) -> int:
        return int(np.count_nonzero(self._owners[: self._counts[USED]] >= 0))

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self.matrix.nbytes + 24 * len(self._owners) + 12 * len(self._heads)

    def assign(self, keys: EncodedKeys, times: Words, late_until: int, epoch: int) -> tuple[Rows, Rows]:
        """The session of each row (-1: late), and the pairs (gone, kept) of sessions that became one.

        The caller adds the rows to the accumulators of their sessions first, then merges the pairs in their order, and
        then calls `forget` with those that are gone.
        """
        rows = self._add_keys(keys)
        slots = np.empty(len(rows), np.int32)
        merges = np.empty((len(rows), 2), np.int32)
        done = merged = 0
        while True:
            done, merged = assign_sessions(
                rows,
                times,
                done,
                self._gap,
                late_until,
                self._heads,
                self._owners,
                self.firsts,
                self.lasts,
                self._nexts,
                self._free,
                self._counts,
                self.matrix,
                self._initial,
                slots,
                merges,
                merged,
            )
            if done == len(rows):
                break
            self._grow(2 * len(self._owners))
        self._changed[rows[slots >= 0]] = epoch
        if len(times):
            self._earliest_end = min(self._earliest_end, int(times.min()) + self._gap - 1)
        return slots, merges[:merged]

    def forget(self, gone: Rows) -> None:
        free_slots(np.ascontiguousarray(gone), self._free, self._counts)

    def alive(self, slots: Rows) -> npt.NDArray[np.bool_]:
        alive: npt.NDArray[np.bool_] = self._owners[slots] >= 0
        return alive

    def keys_of(self, slots: Rows) -> EncodedKeys:
        return self._keys.keys().take(self._owners[slots])

    def ending(self, after: int, until: int) -> Rows:
        """The open sessions whose last millisecond lies in (after, until]."""
        if until < self._earliest_end:
            return np.empty(0, np.int32)
        used = int(self._counts[USED])
        slots = np.empty(used, np.int32)
        count, _ = sessions_ending(self._owners, self.lasts, used, self._gap, after, until, slots)
        return slots[:count]

    def expire(self, until: int) -> None:
        """Remove the sessions whose last millisecond is not behind `until`."""
        if until < self._earliest_end:
            return
        used = int(self._counts[USED])
        slots = np.empty(used, np.int32)
        count, self._earliest_end = sessions_ending(
            self._owners, self.lasts, used, self._gap, -MAX_WATERMARK, until, slots
        )
        remove_sessions(slots[:count], self._heads, self._owners, self._nexts, self._free, self._counts)
        if self._keys.size > 2 * self._counts[LIVE_KEYS] + _FEW_KEYS:
            self._forget_keys()

    def freeze(self, after: int | None) -> FrozenSessions:
        """The sessions of all keys, or of those with a change in an epoch behind `after`."""
        owners = self._owners[: self._counts[USED]]
        chosen = owners >= 0
        if after is not None:
            chosen &= self._changed[owners] > after
        slots = np.flatnonzero(chosen)
        return FrozenSessions(
            self._keys.keys(), owners[slots], self.firsts[slots], self.lasts[slots], self.matrix[slots]
        )

    def replace(self, keys: EncodedKeys, firsts: Words, lasts: Words, values: Matrix) -> None:
        """Take over restored sessions; those that their keys had until now are gone."""
        rows = self._add_keys(keys)
        remove_sessions_of_keys(rows, self._heads, self._owners, self._nexts, self._free, self._counts)
        used = int(self._counts[USED])
        if used + len(rows) > len(self._owners):
            self._grow(max(2 * len(self._owners), used + len(rows)))
        slots = np.arange(used, used + len(rows), dtype=np.int32)
        self._counts[USED] += len(rows)
        self.firsts[slots], self.lasts[slots], self.matrix[slots] = firsts, lasts, values
        link_sessions(slots, rows, self._heads, self._owners, self._nexts, self._counts)
        if len(lasts):
            self._earliest_end = min(self._earliest_end, int(lasts.min()) + self._gap - 1)

    def _add_keys(self, keys: EncodedKeys) -> Rows:
        rows = self._keys.add(keys)
        if self._keys.capacity > len(self._heads):
            self._heads = _grown(self._heads, self._keys.capacity, -1)
            self._changed = _grown(self._changed, self._keys.capacity, 0)
        return rows

    def _grow(self, slots: int) -> None:
        self._owners = _grown(self._owners, slots, -1)
        self._nexts = _grown(self._nexts, slots, -1)
        self._free = _grown(self._free, slots, 0)
        self.firsts = _grown(self.firsts, slots, 0)
        self.lasts = _grown(self.lasts, slots, 0)
        self.matrix = _grown(self.matrix, slots, 0)

    def _forget_keys(self) -> None:
        """Number the keys that have a session anew, without the others."""
        kept = np.flatnonzero(self._heads[: self._keys.size] >= 0).astype(np.int32)
        new_rows = np.full(self._keys.size, -1, np.int32)
        keys = key_index(self._codec, 2 * len(kept))
        new_rows[kept] = keys.add(self._keys.keys().take(kept))
        heads = np.full(keys.capacity, -1, np.int32)
        changed = np.zeros(keys.capacity, np.int64)
        heads[new_rows[kept]] = self._heads[kept]
        changed[new_rows[kept]] = self._changed[kept]
        owned = self._owners >= 0
        self._owners[owned] = new_rows[self._owners[owned]]
        self._keys, self._heads, self._changed = keys, heads, changed


def _grown(array: npt.NDArray[Any], length: int, filler: int) -> npt.NDArray[Any]:
    grown = np.full((length, *array.shape[1:]), filler, array.dtype)
    grown[: len(array)] = array
    return grown
