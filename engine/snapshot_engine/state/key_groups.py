"""Key groups: the unit in which keyed state moves when the parallelism changes."""

from __future__ import annotations


def owned_key_groups(subtask: int, parallelism: int, key_groups: int) -> range:
    """The key groups of one subtask: a contiguous range; all subtasks together own each group once."""
    start = (subtask * key_groups + parallelism - 1) // parallelism
    end = ((subtask + 1) * key_groups + parallelism - 1) // parallelism
    return range(start, end)


def owner_of(key_group: int, parallelism: int, key_groups: int) -> int:
    """The subtask that owns `key_group`."""
    return key_group * parallelism // key_groups
