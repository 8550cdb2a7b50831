"""`supercluster-operator` with a wall clock that a test sets: `python -m tests.support.operator_with_clock FILE [arguments]`.

The file holds an instant (ISO 8601 with its zone), and there the clock stands until another one is written. What measures
how long something takes goes by the monotonic clock, which runs on.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

from supercluster.app.main import SystemClock, main


def set_clock(file: Path, instant: datetime) -> None:
    """The operator reads a whole instant, whenever it looks."""
    draft = file.with_suffix(".new")
    draft.write_text(instant.astimezone(UTC).isoformat())
    draft.replace(file)


class ClockInFile(SystemClock):
    """See the module."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def now(self) -> datetime:
        return datetime.fromisoformat(self._file.read_text())


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], ClockInFile(Path(sys.argv[1]))))
