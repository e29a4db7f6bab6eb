"""State types of code that is sent to the slots: the classes get there, their module does not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

JOB = """
from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from decimal import Decimal

class Shop:
    class Item(NamedTuple):
        at: dt.date
        price: {price}

@dataclass
class Cart:
    at: dt.datetime
    items: list[Shop.Item] = field(default_factory=list)

@dataclass
class Unknown:
    price: Decimal

def make():
    return {made}
"""

SEND = """
import sys

sys.path.insert(0, sys.argv[1])
import cloudpickle, my_job
from snapshot_engine.runtime.forked import ship_by_value

ship_by_value(my_job)
sys.stdout.buffer.write(cloudpickle.dumps(my_job.make))
"""

TAKE = """
import sys

import cloudpickle
from snapshot_engine.state.state_types import codec_of

type_, value = cloudpickle.loads(sys.stdin.buffer.read())()
assert "my_job" not in sys.modules
try:
    codec = codec_of(type_)
    print(codec.text, codec.decode(codec.encode([value])) == [value], sep="\\n")
except TypeError as error:
    print(error)
"""


def in_a_slot(folder: Path, made: str, price: str = "int") -> list[str]:
    """What the type that `made` gives is told as there, and whether the value beside it comes back."""
    (folder / "my_job.py").write_text(JOB.format(price=price, made=made))
    sent = subprocess.run([sys.executable, "-c", SEND, str(folder)], check=True, capture_output=True)
    taken = subprocess.run([sys.executable, "-c", TAKE], input=sent.stdout, check=True, capture_output=True)
    return taken.stdout.decode().splitlines()


CART = "Cart, Cart(dt.datetime(2024, 1, 1), [Shop.Item(dt.date(2024, 1, 1), 2)])"


def test_nested_classes_are_packed_with_annotations_that_are_texts(tmp_path: Path) -> None:
    assert in_a_slot(tmp_path, CART) == ["Cart(at: datetime, items: list[Item(at: date, price: int)])", "True"]


def test_a_changed_field_type_is_told_with_annotations_that_are_texts(tmp_path: Path) -> None:
    assert "price: str" in in_a_slot(tmp_path, CART, price="str")[0]


def test_fields_whose_types_cannot_be_found_are_an_error(tmp_path: Path) -> None:
    (told,) = in_a_slot(tmp_path, "Unknown, Unknown(1)")
    assert told.startswith("the types of the fields of Unknown cannot be found (name 'Decimal' is not defined): ")
