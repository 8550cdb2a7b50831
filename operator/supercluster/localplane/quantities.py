"""Kubernetes' quantities as numbers."""

from __future__ import annotations

import re

_UNITS = {
    "": 1,
    "m": 0.001,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "T": 1000**4,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
    "Ti": 1024**4,
}


def quantity(text: str | float) -> float:
    """A quantity as a number: `500m` is 0.5, `2Gi` is 2147483648.

    Raises:
        ValueError: it is not written like one.
    """
    match = re.fullmatch(r"([0-9.]+)([a-zA-Z]*)", str(text))
    if not match or match.group(2) not in _UNITS:
        raise ValueError(f"{text!r} is not a quantity")
    return float(match.group(1)) * _UNITS[match.group(2)]
