"""Sessions per key: which one a row falls into, which ones it joins, which ones have ended.

Sessions lie in slots. A slot has the row of its key (-1: free), the times of its first and last row, and the next slot
of the same key; `heads` has each key's first slot. Two rows of a key belong together if they are less than the gap
apart, so a row can join at most two sessions.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import inner, kernel, read, write

Times = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]
Counts = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.int64]

USED, FREE, LIVE_KEYS = 0, 1, 2
"""In `counts`: slots ever used, slots on the stack of free ones, keys with a session."""

_COUNTS = write(types.int64)


@inner
def _unlink(slot: int, heads: Numbers, owners: Numbers, nexts: Numbers, counts: Counts) -> None:
    """Take a session out of its key's list. The slot is not free yet."""
    key = owners[slot]
    owners[slot] = -1
    if heads[key] == slot:
        heads[key] = nexts[slot]
        if nexts[slot] < 0:
            counts[LIVE_KEYS] -= 1
        return
    before = heads[key]
    while nexts[before] != slot:
        before = nexts[before]
    nexts[before] = nexts[slot]


@inner
def _link(slot: int, key: int, heads: Numbers, owners: Numbers, nexts: Numbers, counts: Counts) -> None:
    if heads[key] < 0:
        counts[LIVE_KEYS] += 1
    owners[slot] = key
    nexts[slot] = heads[key]
    heads[key] = slot


@kernel(
    (
        read(types.int32),
        read(types.int64),
        types.int64,
        types.int64,
        types.int64,
        write(types.int32),
        write(types.int32),
        write(types.int64),
        write(types.int64),
        write(types.int32),
        write(types.int32),
        _COUNTS,
        write(types.int64, 2),
        read(types.int64),
        write(types.int32),
        write(types.int32, 2),
        types.int64,
    )
)
def assign_sessions(
    keys: Numbers,
    times: Times,
    begin: int,
    gap: int,
    late_until: int,
    heads: Numbers,
    owners: Numbers,
    firsts: Times,
    lasts: Times,
    nexts: Numbers,
    free: Numbers,
    counts: Counts,
    matrix: Matrix,
    initial: Counts,
    out: Numbers,
    merges: Numbers,
    merged: int,
) -> tuple[int, int]:
    """The session of each row from `begin` on; -1 for rows that are late.

    A row that meets no session and whose own would end at or before `late_until` is late. Where a row joins two
    sessions, (gone, kept) is put into `merges`. Returns at which row to go on (it ends early where all slots are in
    use) and how many merges there are.
    """
    for i in range(begin, len(keys)):
        time = times[i]
        found = -1
        slot = heads[keys[i]]
        while slot >= 0:
            following = nexts[slot]
            if time < lasts[slot] + gap and firsts[slot] < time + gap:
                if found < 0:
                    found = slot
                else:
                    firsts[found] = min(firsts[found], firsts[slot])
                    lasts[found] = max(lasts[found], lasts[slot])
                    _unlink(slot, heads, owners, nexts, counts)
                    merges[merged, 0] = slot
                    merges[merged, 1] = found
                    merged += 1
            slot = following
        if found >= 0:
            firsts[found] = min(firsts[found], time)
            lasts[found] = max(lasts[found], time)
        elif time + gap <= late_until:
            found = -1
        else:
            if counts[FREE] > 0:
                counts[FREE] -= 1
                found = free[counts[FREE]]
            elif counts[USED] < len(owners):
                found = counts[USED]
                counts[USED] += 1
            else:
                return i, merged
            firsts[found] = time
            lasts[found] = time
            _link(found, keys[i], heads, owners, nexts, counts)
            for column in range(len(initial)):
                matrix[found, column] = initial[column]
        out[i] = found
    return len(keys), merged


@kernel((read(types.int32), write(types.int32), _COUNTS))
def free_slots(slots: Numbers, free: Numbers, counts: Counts) -> None:
    for i in range(len(slots)):
        free[counts[FREE]] = slots[i]
        counts[FREE] += 1


@kernel((read(types.int32), read(types.int64), types.int64, types.int64, types.int64, types.int64, write(types.int32)))
def sessions_ending(
    owners: Numbers, lasts: Times, used: int, gap: int, after: int, until: int, out: Numbers
) -> tuple[int, int]:
    """The sessions whose last millisecond lies in (after, until], how many, and the least one behind `until`."""
    count = 0
    following = 0x7FFFFFFFFFFFFFFF
    for slot in range(used):
        if owners[slot] < 0:
            continue
        end = lasts[slot] + gap - 1
        if end > until:
            following = min(following, end)
        elif end > after:
            out[count] = slot
            count += 1
    return count, following


@kernel((read(types.int32), write(types.int32), write(types.int32), write(types.int32), write(types.int32), _COUNTS))
def remove_sessions(
    slots: Numbers, heads: Numbers, owners: Numbers, nexts: Numbers, free: Numbers, counts: Counts
) -> None:
    for i in range(len(slots)):
        _unlink(slots[i], heads, owners, nexts, counts)
        free[counts[FREE]] = slots[i]
        counts[FREE] += 1


@kernel((read(types.int32), write(types.int32), write(types.int32), write(types.int32), write(types.int32), _COUNTS))
def remove_sessions_of_keys(
    keys: Numbers, heads: Numbers, owners: Numbers, nexts: Numbers, free: Numbers, counts: Counts
) -> None:
    for i in range(len(keys)):
        while heads[keys[i]] >= 0:
            slot = heads[keys[i]]
            _unlink(slot, heads, owners, nexts, counts)
            free[counts[FREE]] = slot
            counts[FREE] += 1


@kernel((read(types.int32), read(types.int32), write(types.int32), write(types.int32), write(types.int32), _COUNTS))
def link_sessions(
    slots: Numbers, keys: Numbers, heads: Numbers, owners: Numbers, nexts: Numbers, counts: Counts
) -> None:
    for i in range(len(slots)):
        _link(slots[i], keys[i], heads, owners, nexts, counts)
