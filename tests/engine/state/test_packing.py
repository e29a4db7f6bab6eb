from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict, deque
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import ormsgpack
import pytest

from snapshot_engine.state.packing import PackError, UnpackError, pack, pack_all, unpack, unpack_all


@pytest.mark.parametrize(
    "value",
    [
        2**64,
        -(2**70),
        {1: "a", None: "b"},
        {dt.date(2024, 1, 1): {(1, 2): 3}},
        {frozenset({1}): 1},
        Counter("aab"),
        OrderedDict([("b", 1), ("a", 2)]),
        deque([1, 2], maxlen=3),
        dt.datetime(2024, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")),
        dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
        [((1, (2,)), {"a": ({1},)})],
        float("inf"),
    ],
    ids=repr,
)
def test_values_come_back_equal_and_of_their_type(value: Any) -> None:
    back = unpack(pack(value))
    assert back == value
    assert type(back) is type(value)
    assert unpack_all(pack_all([value, 1])) == [value, 1]


def test_the_zone_of_a_time_comes_back() -> None:
    back = unpack(pack(dt.datetime(2024, 7, 1, tzinfo=ZoneInfo("Europe/Berlin"))))
    assert back.tzinfo == ZoneInfo("Europe/Berlin")


def test_a_bounded_deque_stays_bounded() -> None:
    assert unpack(pack(deque([1], maxlen=2))).maxlen == 2


def test_numbers_of_numpy_become_python_s() -> None:
    assert unpack(pack([np.int32(5), np.float64(0.5), np.bool_(True)])) == [5, 0.5, True]


class Foreign:
    pass


@pytest.mark.parametrize("value", [Foreign(), [Foreign()], (1, (Foreign(),)), {1: [Foreign()]}, {"a": {Foreign(): 1}}])
def test_a_foreign_value_is_named_wherever_it_hides(value: Any) -> None:
    with pytest.raises(PackError, match="Foreign cannot be packed; what can: None, bool"):
        pack(value)
    with pytest.raises(PackError, match="Foreign") as caught:
        pack_all([1, 2, value])
    assert caught.value.args[1] == 2


def test_text_that_is_no_unicode_is_told() -> None:
    with pytest.raises(PackError, match="lone surrogates"):
        pack(["\ud800"])


def test_bytes_of_a_newer_version_are_refused() -> None:
    for data in (ormsgpack.packb(ormsgpack.Ext(99, b"")), b"\x92\x01", b""):
        with pytest.raises(UnpackError, match="damaged, or of a newer version"):
            unpack(data)
