"""The rows of a cutover. Each has a pair of super-clusters of its own: a cutover is done once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from e2e.cutover import stories
from e2e.cutover.direct import DirectPair
from e2e.cutover.pair import Pair
from e2e.cutover.plane import PlanePair
from e2e.cutover.rows import Row

DIRECT, PLANE = "direct", "plane"
WAYS = (PLANE, DIRECT)
BLUE, GREEN, LINK, OPERATOR = "broker of blue", "broker of green", "link", "operator"
Story = Callable[..., None]
EVENTS: tuple[tuple[str, str, Story], ...] = (
    ("kill -9", BLUE, stories.kill_blue),
    ("kill -9", GREEN, stories.kill_green),
    ("SIGSTOP", BLUE, stories.pause_blue),
    ("SIGSTOP", GREEN, stories.pause_green),
    ("cut for 20 s", LINK, stories.cut_link),
    ("kill -9", OPERATOR, stories.kill_operator),
)
SIZES = {"east": 3}


@dataclass(frozen=True, slots=True)
class Case:
    """A row that is to be."""

    way: str
    event: str
    story: Story
    victim: str = "-"
    stage: str = "-"

    @property
    def name(self) -> str:
        whom = f", {self.victim}" if self.victim != "-" else ""
        return f"{self.way}: {self.event}{whom}{f' at {self.stage}' if self.stage != '-' else ''}"

    def row(self) -> Row:
        return Row(self.way, self.event, self.victim, self.stage)


def cases_of(way: str) -> list[Case]:
    """All of one way. Only brokers that were started directly can have their links cut, and only the plane has an operator."""
    lacking = {PLANE: LINK, DIRECT: OPERATOR}[way]
    found = [Case(way, "clean", stories.clean)]
    for event, victim, story in EVENTS:
        if victim != lacking:
            found += [Case(way, event, story, victim, stage) for stage in stories.STAGES]
    return found


class Matrix:
    """Runs rows and keeps what they found."""

    def __init__(self, say: Callable[[str], None], rate: float, tries: int) -> None:
        self.rows: list[Row] = []
        self._say, self._rate, self._tries = say, rate, tries
        self._pairs = 0

    @staticmethod
    def cases(ways: Sequence[str], only: str) -> list[Case]:
        """Without a way: each event once, by a manifest where the plane can have it."""
        found = [case for way in ways or WAYS for case in cases_of(way)]
        if not ways:
            on_plane = {(case.event, case.victim) for case in cases_of(PLANE)}
            found = [case for case in found if case.way == PLANE or (case.event, case.victim) not in on_plane]
        return [case for case in found if only in case.name]

    def run(self, cases: Sequence[Case], directory: Path) -> None:
        """Every case, each until its stage was hit or it was tried often enough; the table grows with each."""
        for number, case in enumerate(cases, 1):
            for attempt in range(1, self._tries + 1):
                again = f", attempt {attempt}" if attempt > 1 else ""
                self._say(f"row {number} of {len(cases)}: {case.name}{again}")
                row = self._run(case, directory)
                self._say(f"  {row.line}")
                for text in (*row.wrongs, *(row.verdict.examples if row.verdict else ())):
                    self._say(f"  WRONG: {text}")
                if row.is_hit or not row.is_right:
                    break

    def _run(self, case: Case, directory: Path) -> Row:
        row = case.row()
        self.rows.append(row)
        with ExitStack() as stack:
            try:
                began = time.monotonic()
                pair = self._pair(case, directory, stack)
                self._say(f"  blue and green are ready after {time.monotonic() - began:.1f} s")
                case.story(pair, row, self._say, rate=self._rate)
            except Exception as error:
                row.wrongs.append(f"{type(error).__name__}: {error}")
        return row

    def _pair(self, case: Case, directory: Path, stack: ExitStack) -> Pair:
        self._pairs += 1
        folder = directory / f"row-{self._pairs}"
        folder.mkdir()
        if case.way == DIRECT:
            return stack.enter_context(DirectPair(folder, SIZES))
        plane = PlanePair(folder, stack, self._say)
        plane.start()
        return plane
