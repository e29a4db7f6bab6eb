"""What lies in Parquet's pages of dictionary-encoded strings.

Nothing is believed of what a page says: whatever does not fit is told, and nothing outside the page is read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from snapshot_engine.kernels.compiled import inner, kernel, read, write
from snapshot_engine.kernels.memory import address_of, copy_bytes, load_word

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int32]
Integer = Any
"""Of Python or of NumPy: compiled they are the same."""

_PREFIX = 4
"""A string's length lies before it, in so many bytes."""
_MOST_BITS = 31
_BAD = -1


@inner
def _little_endian(page: Bytes, begin: Integer, size: Integer) -> Integer:
    number: Integer = 0
    for i in range(size):
        number |= np.int64(page[begin + i]) << (8 * i)
    return number


@kernel((read(types.uint8), write(types.int32)))
def find_values(page: Bytes, starts: Numbers) -> int:
    """Where each string of a dictionary page begins; the last start is where one more would, so that string i is
    page[starts[i] : starts[i + 1] - 4]. Returns the longest one's length, or -1 if these are not the page's strings."""
    longest: Integer = 0
    end: Integer = 0
    for i in range(len(starts) - 1):
        if end + _PREFIX > len(page):
            return _BAD
        length = _little_endian(page, end, _PREFIX)
        starts[i] = end + _PREFIX
        end += _PREFIX + length
        longest = max(longest, length)
    starts[-1] = end + _PREFIX
    return longest if end == len(page) else _BAD


@inner
def _unpack_run(page: Bytes, begin: Integer, width: Integer, out: Numbers, first: Integer, count: Integer) -> None:
    """`count` numbers of `width` bits each, one behind the other, the lowest bit first."""
    start = address_of(page) + begin
    mask = (1 << width) - 1
    # A number lies within eight bytes from the one it begins in; the last few are put together byte by byte.
    by_words = min(count, max(0, 8 * (len(page) - begin - 8) // max(1, width)))
    for i in range(by_words):
        bit = i * width
        out[first + i] = np.int64(load_word(start + (bit >> 3)) >> np.uint64(bit & 7)) & mask
    for i in range(by_words, count):
        bit = i * width
        size = min(8, len(page) - begin - (bit >> 3))
        out[first + i] = (_little_endian(page, begin + (bit >> 3), size) >> (bit & 7)) & mask


@kernel((read(types.uint8), types.int64, types.int64, write(types.int32)))
def unpack_indices(page: Bytes, begin: int, limit: int, out: Numbers) -> bool:
    """Fill `out` with a data page's indices: their width in bits, then runs of one number or of packed ones.

    Whether there were as many, all of them below `limit`.
    """
    if begin >= len(page) or page[begin] > _MOST_BITS:
        return False
    width = np.int64(page[begin])
    size_of_one = (width + 7) >> 3
    position: Integer = begin + 1
    done = 0
    while done < len(out):
        run: Integer = 0
        for shift in range(0, 35, 7):
            if position >= len(page):
                return False
            byte = np.int64(page[position])
            position += 1
            run |= (byte & 127) << shift
            if byte < 128:
                break
        packed = run & 1
        count = min((run >> 1) * 8 if packed else run >> 1, len(out) - done)
        size = (count * width + 7) >> 3 if packed else size_of_one
        if count == 0 or position + size > len(page):
            return False
        if packed:
            _unpack_run(page, position, width, out, done, count)
            position += (run >> 1) * width
        else:
            number = _little_endian(page, position, size_of_one)
            if number >= limit:
                return False
            for i in range(done, done + count):
                out[i] = number
            position += size_of_one
        done += count
    highest: Integer = 0
    for i in range(len(out)):
        highest = max(highest, out[i])
    return bool(highest < limit)


@kernel((read(types.int32), read(types.int32)))
def total_length(starts: Numbers, indices: Numbers) -> int:
    total = 0
    for i in range(len(indices)):
        total += starts[indices[i] + 1] - starts[indices[i]] - _PREFIX
    return total


@kernel((read(types.uint8), read(types.int32), read(types.int32), write(types.uint8), write(types.int32)))
def copy_values(page: Bytes, starts: Numbers, indices: Numbers, out: Bytes, offsets: Numbers) -> None:
    """The strings of the indices one behind the other; `out` has COPY_SLACK bytes to spare."""
    source, target = address_of(page), address_of(out)
    end = 0
    offsets[0] = 0
    for i in range(len(indices)):
        start = starts[indices[i]]
        length = starts[indices[i] + 1] - start - _PREFIX
        copy_bytes(source + start, length, source + len(page), target + end)
        end += length
        offsets[i + 1] = end
