"""The arithmetic of hashes. FROZEN: hashes decide key groups, and key groups are in every checkpoint."""

from __future__ import annotations

import numpy as np

from snapshot_engine.kernels.compiled import inner
from snapshot_engine.kernels.memory import load_byte, load_word

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
NULL_HASH = np.uint64(0x6E756C6C6E756C6C)

_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_WORD_PRIME = np.uint64(0x9FB21C651E98DF25)
_COMBINE_PRIME = np.uint64(0x9DDFEA08EB382D69)
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_NO_BITS = np.uint64(0)
_30 = np.uint64(30)
_27 = np.uint64(27)
_31 = np.uint64(31)
_32 = np.uint64(32)


@inner
def mix(word: np.uint64) -> np.uint64:
    """SplitMix64: every bit of the result depends on every bit of the word."""
    word = word + GOLDEN
    word = (word ^ (word >> _30)) * _MIX_1
    word = (word ^ (word >> _27)) * _MIX_2
    return word ^ (word >> _31)


@inner
def combine(left: np.uint64, right: np.uint64) -> np.uint64:
    """The hash of a pair from the hashes of its parts; the order counts."""
    return mix((left * _COMBINE_PRIME) ^ right)


@inner
def _take_in(state: np.uint64, word: np.uint64) -> np.uint64:
    state = (state ^ word) * _WORD_PRIME
    return state ^ (state >> _32)


@inner
def first_and_last(start: int, length: int, data_end: int) -> tuple[np.uint64, np.uint64]:
    """The first and the last eight bytes of a string, which may overlap; of a shorter one twice all it has, and zeros.

    Words are little-endian. `start` and `data_end` are addresses; nothing at or behind `data_end` is read.
    """
    if length >= 8:
        return load_word(start), load_word(start + length - 8)
    if length > 0 and start + 8 <= data_end:
        word = load_word(start) & (_ALL_BITS >> np.uint64(64 - 8 * length))
        return word, word
    word = _NO_BITS
    for i in range(length):
        word |= np.uint64(load_byte(start + i)) << np.uint64(8 * i)
    return word, word


@inner
def hash_bytes(start: int, length: int, data_end: int) -> np.uint64:
    """From the length, the first word, the whole words after it, and the last one (see `first_and_last`)."""
    first, last = first_and_last(start, length, data_end)
    state = _take_in(np.uint64(length) * GOLDEN, first)
    position = start + 8
    while position < start + length - 8:
        state = _take_in(state, load_word(position))
        position += 8
    return mix(_take_in(state, last))
