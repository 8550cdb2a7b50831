"""An error as one line."""

from __future__ import annotations

import re

_CAUSE = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Exception)): (.+)")


def one_line(error: Exception) -> str:
    """What went wrong. Of an error that came through Java, the Python error that it was in the task."""
    lines = str(error).strip().splitlines()
    causes = [match for line in lines if (match := _CAUSE.match(line))]
    if len(lines) > 1 and causes:
        return f"{causes[-1][1]}: {causes[-1][2]}"
    return lines[0] if lines else type(error).__name__
