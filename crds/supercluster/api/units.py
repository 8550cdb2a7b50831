"""Durations and byte sizes as people write them in manifests.

A duration is Go's form, which CEL's `duration()` also reads ("1h30m", "500ms"); a size is a Kubernetes quantity of
whole bytes ("512Mi", "1G", or a plain number).
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

DURATION_PATTERN = r"^([0-9]+(ms|s|m|h))+$"
PERIOD_PATTERN = r"^([0-9]+(s|m|h|d))+$"
SIZE_PATTERN = r"^[0-9]+(Ki|Mi|Gi|Ti|k|M|G|T)?$"
QUANTITY_PATTERN = r"^[0-9]+(\.[0-9]+)?(m|Ki|Mi|Gi|Ti|k|M|G|T)?$"

_DURATION_PART = re.compile(r"([0-9]+)(ms|s|m|h)")
_NS_PER_UNIT = {"ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000, "h": 3_600_000_000_000}
_PERIOD_PART = re.compile(r"([0-9]+)([smhd])")
_S_PER_UNIT = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_SIZE_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def _quantity_text(value: Any) -> Any:
    """A number and a string are the same quantity; the models hold the string."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


def _int_or_string(pattern: str) -> dict[str, Any]:
    """The schema of a quantity. The pattern is for the text, the minimum for the number."""
    return {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "pattern": pattern,
        "minimum": 0,
        "x-kubernetes-int-or-string": True,
    }


Duration = Annotated[str, Field(pattern=DURATION_PATTERN, max_length=32)]
"""One or more of number and unit, such as 2m, 24h or 1h30m."""

Period = Annotated[str, Field(pattern=PERIOD_PATTERN, max_length=32)]
"""One or more of number and unit, days included, such as 90d or 12h. CEL's `duration()` does not read it."""

Size = Annotated[
    str,
    BeforeValidator(_quantity_text),
    Field(pattern=SIZE_PATTERN, max_length=20),
    WithJsonSchema(_int_or_string(SIZE_PATTERN)),
]
"""A number of bytes, with or without a unit."""

Quantity = Annotated[
    str,
    BeforeValidator(_quantity_text),
    Field(pattern=QUANTITY_PATTERN, max_length=20),
    WithJsonSchema(_int_or_string(QUANTITY_PATTERN)),
]
"""An amount of a resource as Kubernetes writes it: 2, 500m, 1.5Gi."""


def duration_ns(text: str) -> int:
    """Nanoseconds of a duration.

    Raises:
        ValueError: the text is not a duration.
    """
    if not re.fullmatch(DURATION_PATTERN, text):
        raise ValueError(f"{text!r} is not a duration; write numbers with ms, s, m or h, such as 2m or 1h30m")
    return sum(int(number) * _NS_PER_UNIT[unit] for number, unit in _DURATION_PART.findall(text))


def duration_ms(text: str) -> int:
    """Milliseconds of a duration, rounded down."""
    return duration_ns(text) // 1_000_000


def size_bytes(text: str) -> int:
    """Bytes of a size.

    Raises:
        ValueError: the text is not a size.
    """
    if not re.fullmatch(SIZE_PATTERN, text):
        raise ValueError(
            f"{text!r} is not a size; write whole bytes with or without Ki, Mi, Gi, Ti, k, M, G or T"
        )
    digits = text.rstrip("KMGTik")
    return int(digits) * _SIZE_UNITS[text[len(digits) :]]


def period_s(text: str) -> int:
    """Seconds of a period.

    Raises:
        ValueError: the text is no period.
    """
    if not re.fullmatch(PERIOD_PATTERN, text):
        raise ValueError(f"{text!r} is no period; write numbers with s, m, h or d, such as 90d or 12h")
    return sum(int(number) * _S_PER_UNIT[unit] for number, unit in _PERIOD_PART.findall(text))
