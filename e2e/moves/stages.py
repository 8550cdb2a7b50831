"""Which stage a move is at, and who takes part, from what the brokers log at once: the stream's leader says `MoveStage` when
it enters one, the map's leader `MoveStarted` before.

Some stages last a few milliseconds, too short to be seen by asking STREAM.INFO. The log of a broker that was killed also
tells afterwards at which stage it was hit: the last one that it entered.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

LINE = re.compile(rb"^(\S+Z) .*MoveStage S\.\$G\.([^\s.]+)\.\S+: move ([^\s:]+): ([a-z ]+): ")
STARTED = re.compile(rb"MoveStarted S\.\$G\.([^\s.]+)\.\S+: stream \S+ moves from .* to (.*)$")
STOOD_STILL = re.compile(rb"this process was stopped for (\d+) ms")
POLL_SECONDS = 0.0005
READ_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Entered:
    """A leader entered a stage of a move."""

    stamp: str
    broker: str
    stream: str
    move: str
    stage: str


class StageWatch:
    """Follows the logs of brokers from where they end now."""

    def __init__(self, logs: Mapping[str, Path]) -> None:
        self.entered: list[Entered] = []
        self.targets: dict[str, list[str]] = {}
        """Brokers that a stream's last move named."""
        self.stood_still_ms = 0
        """The longest time for which a broker said that it got no turn: the machine is too small, or too busy."""
        self._files: dict[str, int] = {}
        self._rests: dict[str, bytes] = {}
        for broker, path in logs.items():
            self._files[broker] = os.open(path, os.O_RDONLY)
            os.lseek(self._files[broker], 0, os.SEEK_END)
            self._rests[broker] = b""

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def look(self) -> list[Entered]:
        """What is new."""
        found = []
        for broker, descriptor in self._files.items():
            data = os.read(descriptor, READ_BYTES)
            if not data:
                continue
            *lines, self._rests[broker] = (self._rests[broker] + data).split(b"\n")
            for line in lines:
                self._note(line)
                match = LINE.match(line)
                if match:
                    stamp, stream, move, stage = (part.decode() for part in match.groups())
                    found.append(Entered(stamp, broker, stream, move, stage))
        self.entered += found
        return found

    def _note(self, line: bytes) -> None:
        still = STOOD_STILL.search(line)
        if still:
            self.stood_still_ms = max(self.stood_still_ms, int(still.group(1)))
        started = STARTED.search(line)
        if started:
            stream, members = (part.decode() for part in started.groups())
            self.targets[stream] = sorted(member.partition("@")[0] for member in members.split(", "))

    def wait_for(
        self, move: str, stage: str, seconds: float, is_over: Callable[[], bool] = lambda: False
    ) -> Entered | None:
        """Return the moment a leader says that it entered the stage; None when none did in time, or it is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not is_over():
            self.look()
            for entered in self.entered:
                if (entered.move, entered.stage) == (move, stage):
                    return entered
            time.sleep(POLL_SECONDS)
        return None

    def wait_for_any(self, stream: str, seconds: float) -> Entered | None:
        """Return the moment a leader says that a move of the stream entered any stage; None when none did in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            for entered in self.entered:
                if entered.stream == stream:
                    return entered
            time.sleep(POLL_SECONDS)
        return None

    def last(self, move: str, broker: str = "") -> str:
        """The stage entered last, by anybody or by that broker; empty: none yet."""
        self.look()
        found = [e for e in self.entered if e.move == move and broker in ("", e.broker)]
        return max(found, key=lambda e: e.stamp).stage if found else ""
