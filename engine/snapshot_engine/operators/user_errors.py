"""Errors that a user's code or data caused, told with the operator, the record, and the user's own lines."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pyarrow as pa

_ENGINE = str(Path(__file__).resolve().parent.parent)
_SHOWN = 300


class UserFunctionError(Exception):
    """A user's function raised. The message has all that the user needs; the cause is what was raised."""

    def __init__(
        self, operator: str, doing: str, error: BaseException, record: Any = None, *, has_record: bool
    ) -> None:
        self.operator = operator
        lines = [f"{doing} of operator {operator!r} raised {_summary(error)}"]
        if has_record:
            lines.append(f"  on the record: {shown(record)}")
        self.frames = user_frames(error)
        if self.frames:
            lines.append("  at:")
            lines.extend("    " + line for line in self.frames)
        super().__init__("\n".join(lines))


class RecordMismatchError(Exception):
    """What a user's function returned does not fit the schema that was declared for it."""

    def __init__(self, operator: str, reason: str, record: Any, schema: pa.Schema) -> None:
        self.operator = operator
        expected = ", ".join(f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in schema)
        super().__init__(
            f"a record of operator {operator!r} does not fit its schema: {reason}\n"
            f"  the record: {shown(record)}\n"
            f"  the schema: {expected}\n"
            "  return a row, a tuple in this order, or a dict or dataclass with these fields"
        )


class PlainRecordError(Exception):
    """A value that cannot travel in a stream without a schema."""

    def __init__(self, operator: str, reason: str, record: Any) -> None:
        self.operator = operator
        super().__init__(
            f"operator {operator!r} has no schema, so its records must be plain values: {reason}\n"
            f"  the record: {shown(record)}\n"
            "  declare a schema for the operator, or return plain values"
        )


def shown(record: Any) -> str:
    """The record's repr, cut to a length that can be read; never raises."""
    try:
        text = repr(record)
    except Exception as error:
        return f"<{type(record).__qualname__} whose repr raised {type(error).__name__}>"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def user_frames(error: BaseException) -> list[str]:
    """The traceback without the engine's own frames, which tell the user nothing."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(_ENGINE)]
    return "".join(traceback.format_list(frames)).rstrip().splitlines()


def _summary(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error)).strip()
