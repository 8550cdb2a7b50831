"""What a scenario is told: where to write, how often to run, which servers to compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.servers import Fleet


@dataclass(frozen=True, slots=True)
class Course:
    directory: Path
    """The scenario's own, removed afterwards."""
    runs: int
    fleets: Mapping[str, type[Fleet]]
    """By kind; a scenario runs them in turns."""
