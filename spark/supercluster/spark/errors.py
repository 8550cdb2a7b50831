"""Formats an error as one line."""

from __future__ import annotations

import re

_CAUSE = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)")


def one_line(error: Exception) -> str:
    """What went wrong, with the error's class unless it is one of ours, whose text says all. Of an error that came through Java, the Python
    error that it was in the task."""
    lines = str(error).strip().splitlines()
    causes = [match for line in lines if (match := _CAUSE.match(line))]
    if causes:
        return f"{causes[-1][1]}: {causes[-1][2]}"
    kind = type(error)
    if not lines:
        return kind.__name__
    return lines[0] if kind.__module__.startswith("supercluster.") else f"{kind.__name__}: {lines[0]}"
