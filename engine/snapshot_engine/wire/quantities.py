"""Durations and byte sizes as people write them in a manifest, held as plain numbers in code.

A duration is seconds (float) and a byte size is bytes (int) everywhere in Python; the string form exists only
in YAML and JSON, where it keeps its unit, so that nobody has to guess what ``interval: 10`` means.
"""

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, ValidationInfo, WithJsonSchema

# A part of what Go and Kubernetes call a duration, so that the API server can check and compare it, too.
DURATION_PATTERN = r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$"
BYTES_PATTERN = r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)$"
UNITS_OF_BYTES = "Ki, Mi, Gi, Ti, or k, M, G, T"

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_BINARY_UNITS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_BYTES = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, **_BINARY_UNITS}

# "ms" before "m", so that 500ms is not read as 500 minutes followed by a stray s.
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h)")


ACCEPTED_BEFORE = {"accepted_before": True}
"""Validation context of what an earlier release has accepted, which may have been less strict: it must go on."""


def was_accepted_before(info: ValidationInfo) -> bool:
    return bool(info.context and info.context.get("accepted_before"))


def parse_duration(text: str) -> float:
    """Seconds of ``"500ms"``, ``"10s"``, ``"1m30s"``; raises ValueError with what is allowed."""
    if not isinstance(text, str) or not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(
            f'{text!r} is not a duration: write a number with its unit (ms, s, m, h), such as "500ms", "10s" or "1m"'
        )
    # Rounded to the microsecond, so that "100ms" is 0.1 and not 0.1 plus a rounding error of the
    # multiplication.
    return round(sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(text)), 6)


def format_duration(seconds: float) -> str:
    """The shortest single-unit form: 90 → ``90s``, 120 → ``2m``, 0.5 → ``500ms``."""
    milliseconds = seconds * 1000
    for unit, size in (("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds >= size and milliseconds % size == 0:
            return f"{int(milliseconds // size)}{unit}"
    return "0s" if seconds == 0 else f"{milliseconds:.6f}".rstrip("0").rstrip(".") + "ms"


def parse_bytes(text: str) -> int:
    """Bytes of a Kubernetes quantity such as ``"2Gi"`` or ``"512Mi"``."""
    matched = re.fullmatch(BYTES_PATTERN, text) if isinstance(text, str) else None
    if matched is None:
        raise ValueError(
            f'{text!r} is not a size in bytes: write a number with its unit ({UNITS_OF_BYTES}), such as "1Gi" or "2Gi"'
        )
    unit = matched.group(2)
    return int(float(text.removesuffix(unit)) * _BYTES[unit])


def _read_bytes(text: str, info: ValidationInfo) -> int:
    """Earlier releases took, and wrote, bare numbers of bytes."""
    bare = isinstance(text, str) and re.fullmatch("[0-9]+", text) is not None
    return int(text) if bare and was_accepted_before(info) else parse_bytes(text)


def format_bytes(size: int) -> str:
    for unit, factor in reversed(_BINARY_UNITS.items()):
        if size >= factor and size % factor == 0:
            return f"{size // factor}{unit}"
    # Exact: a 1024th has ten digits behind the point.
    whole, rest = divmod(size, 1024)
    return f"{whole}.{rest * 10**10 // 1024:010}".rstrip("0").rstrip(".") + "Ki"


def _require_positive(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("must be longer than 0")
    return seconds


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "format": "duration", "maxLength": 32}),
]
"""Seconds, zero allowed."""

PositiveDuration = Annotated[
    float,
    BeforeValidator(lambda text: _require_positive(parse_duration(text))),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "format": "positive-duration", "maxLength": 32}),
]
"""Seconds, longer than zero."""

ByteSize = Annotated[
    int,
    BeforeValidator(_read_bytes),
    PlainSerializer(format_bytes, return_type=str),
    WithJsonSchema({"type": "string", "format": "byte-size", "maxLength": 32}),
]
"""Bytes."""
