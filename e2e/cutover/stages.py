"""Which stage each stream is at, from what the brokers log at once: the stream's leader on blue says `MigrationStage`.

Some stages last a few milliseconds, too short to be seen by asking. The log of a broker that was killed also tells at which stage it
was hit.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

LINE = re.compile(
    rb"^(\S+Z) .*MigrationStage S\.[^.\s]+\.([^\s.]+)\.\S+: migration (\S+): attempt (\d+): ([a-z]+): .*$"
)
STOOD_STILL = re.compile(rb"this process was stopped for (\d+) ms")
POLL_SECONDS = 0.0005
READ_BYTES = 1 << 16
STAGES = ("learning", "fenced", "handed", "open")
"""In their order, as leaders of streams say them."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A leader says that its stream is at a stage."""

    at: float
    """Seconds, by the broker's clock."""
    broker: str
    stream: str
    attempt: int
    stage: str


class CutoverWatch:
    """Follows the logs of brokers from where they end now."""

    def __init__(self, logs: Mapping[str, Path]) -> None:
        self.entered: list[Entered] = []
        self.stood_still_ms = 0
        """The longest time for which a broker said that it got no turn: the machine is too small, or too busy."""
        self._files: dict[str, int] = {}
        self._rests: dict[str, bytes] = {}
        for broker, path in logs.items():
            self._files[broker] = os.open(path, os.O_RDONLY)
            os.lseek(self._files[broker], 0, os.SEEK_END)
            self._rests[broker] = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def look(self) -> list[Entered]:
        """What is new."""
        found = []
        for broker, descriptor in self._files.items():
            data = os.read(descriptor, READ_BYTES)
            if not data:
                continue
            *lines, self._rests[broker] = (self._rests[broker] + data).split(b"\n")
            for line in lines:
                still = STOOD_STILL.search(line)
                if still:
                    self.stood_still_ms = max(self.stood_still_ms, int(still.group(1)))
                match = LINE.match(line)
                if match:
                    stamp, stream, _, attempt, stage = (part.decode() for part in match.groups())
                    at = datetime.fromisoformat(stamp).timestamp()
                    found.append(Entered(at, broker, stream, int(attempt), stage))
        self.entered += found
        return found

    def wait_for(
        self, stage: str, stream: str, seconds: float, is_over: Callable[[], bool] = lambda: False
    ) -> Entered | None:
        """The moment a leader says that the stream is at the stage; None when none did in time, or it is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not is_over():
            self.look()
            for entered in self.entered:
                if (entered.stage, entered.stream) == (stage, stream):
                    return entered
            time.sleep(POLL_SECONDS)
        return None

    def last(self, stream: str) -> str:
        """The stage that the stream entered last; empty: none yet."""
        self.look()
        found = [entered for entered in self.entered if entered.stream == stream]
        return max(found, key=lambda e: e.at).stage if found else ""

    def stalls_ms(self) -> dict[str, float]:
        """By stream, how long its last fence lasted until green had opened it. Streams that nobody saw open are left out."""
        self.look()
        found: dict[str, float] = {}
        for stream in {entered.stream for entered in self.entered}:
            own = sorted((e for e in self.entered if e.stream == stream), key=lambda e: e.at)
            opened = next((e for e in own if e.stage == "open"), None)
            if opened is None:
                continue
            fences = [
                e.at for e in own if e.stage == "fenced" and e.attempt == opened.attempt and e.at <= opened.at
            ]
            if fences:
                found[stream] = 1000 * (opened.at - fences[0])
        return found

    def attempts(self) -> int:
        """The largest number of tries that a stream needed."""
        return max((entered.attempt for entered in self.entered), default=0)


def median_and_worst(stalls: Mapping[str, float]) -> tuple[float, float]:
    """Zeros where there are none."""
    return (statistics.median(stalls.values()), max(stalls.values())) if stalls else (0.0, 0.0)
