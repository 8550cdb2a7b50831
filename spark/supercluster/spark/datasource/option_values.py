"""Parsers for the values of options. An error names the option and its valid values."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}
_TRUTH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}

Values = Mapping[str, str]
"""By names in lower case, as Spark hands them to Python sources."""


class OptionError(ValueError):
    """An option is missing or wrong."""

    def __init__(self, option: str, value: str | None, right: str, *, says: str = "is missing") -> None:
        shown = says if value is None else f"is {value!r}"
        super().__init__(f"supercluster source: option {option!r} {shown}; {right}")
        self.option = option


def refuse_unknown(
    given: Mapping[str, str], known: Sequence[str], *, of: str, elsewhere: Values, passed: frozenset[str]
) -> None:
    """Values are not shown: one may be a password under a misspelt name.

    Raises:
        OptionError: a name is not known. It is shown as the caller wrote it, though Spark hands over lower case.
    """
    by_lower = {name.lower(): name for name in known}
    for name in sorted(given):
        lower = name.lower()
        if lower in by_lower or lower in passed:
            continue
        near = difflib.get_close_matches(lower, by_lower, n=1, cutoff=0.5)
        right = f"did you mean {by_lower[near[0]]!r}? " if near else ""
        right += f"The options{of} are {', '.join(known)}"
        raise OptionError(name, None, elsewhere.get(lower, right), says="is not known")


def duration(values: Values, option: str, *, default: float) -> float:
    """Seconds, of a text like 15m."""
    text = values.get(option.lower())
    if text is None:
        return default
    found = re.fullmatch(r"(\d+)\s*([a-z]+)", text.strip().lower())
    if found is None or found[2] not in UNIT_SECONDS:
        raise OptionError(option, text, "give a number with ms, s, m, h or d, like 15m")
    return int(found[1]) * UNIT_SECONDS[found[2]]


def whole(values: Values, option: str, *, low: int, high: int | None = None) -> int | None:
    text = values.get(option.lower())
    if text is None:
        return None
    if not text.isdigit() or int(text) < low or (high is not None and int(text) > high):
        bound = f"from {low} on" if high is None else f"from {low} to {high}"
        raise OptionError(option, text, f"give a whole number {bound}")
    return int(text)


def flag(values: Values, option: str, *, default: bool) -> bool:
    text = values.get(option.lower())
    if text is None:
        return default
    if text.lower() not in _TRUTH:
        raise OptionError(option, text, "give true or false")
    return _TRUTH[text.lower()]


def choice(values: Values, option: str, known: Sequence[str]) -> str:
    """One of the known words; the first one by default."""
    text = values.get(option.lower(), known[0])
    if text.lower() not in known:
        raise OptionError(option, text, f"give {', '.join(known[:-1])} or {known[-1]}")
    return text.lower()


def seconds(values: Values, option: str, *, default: float, low: float, high: float) -> float:
    text = values.get(option.lower())
    if text is None:
        return default
    try:
        found = float(text)
    except ValueError:
        found = low - 1
    if not low <= found <= high:
        raise OptionError(option, text, f"give seconds from {low:g} to {high:g}")
    return found
