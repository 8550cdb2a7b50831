"""The rows of the matrix and the brokers that they run on: one set of brokers for all rows of a topology, made anew
after a row that went wrong."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from e2e.moves import stories
from e2e.moves.course import ORDER
from e2e.moves.ledger import MODES
from e2e.moves.plane import PlaneSite
from e2e.moves.rows import Row
from e2e.moves.site import REPLICAS, DirectSite, Site

TOPOLOGIES = {"3+3": {"east": 3, "west": 3}, "3+3+5": {"east": 3, "west": 3, "south": 5}}
LEADER, DESTINATION, OPERATOR = "leader", "destination node", "operator"
CUT_AT = ("learning", "comparing", "handing over")
Story = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Case:
    """A row that is to be."""

    topology: str
    event: str
    story: Story
    goal: str = ""
    victim: str = "-"
    stage: str = "-"

    @property
    def name(self) -> str:
        whom = f", {self.victim}" if self.victim != "-" else ""
        return f"{self.topology}: {self.event}{whom}{f' at {self.stage}' if self.stage != '-' else ''}"

    @property
    def has_operator(self) -> bool:
        """Does it need the embedded control plane?"""
        return self.victim == OPERATOR

    def row(self) -> Row:
        return Row(self.topology, self.event, self.victim, self.stage)


def cases_of(topology: str) -> list[Case]:
    """All of one topology. Streams begin in the first cluster; they go to the largest of the others, but for the
    undisturbed moves, which go to each."""
    sizes = TOPOLOGIES[topology]
    others = list(sizes)[1:]
    goal = max(others, key=sizes.__getitem__)
    found = [Case(topology, f"move to {other}", stories.undisturbed, other) for other in others]
    for mode, name in enumerate(MODES):
        found.append(
            Case(
                topology,
                f"move to {goal}, all {name}",
                functools.partial(stories.undisturbed, modes=(mode,)),
                goal,
            )
        )
    for stage in ORDER:
        found.append(
            Case(topology, "kill -9, a consumer reads", stories.kill_leader_of_reader, goal, LEADER, stage)
        )
        for victim, story in ((LEADER, stories.kill_leader), (DESTINATION, stories.kill_destination)):
            found.append(Case(topology, "kill -9", story, goal, victim, stage))
    found += [
        Case(topology, "partition, healed", stories.partition, goal, f"east from {goal}", stage)
        for stage in CUT_AT
    ]
    if sizes[goal] > REPLICAS:
        found.append(
            Case(topology, "kill -9, stays away", stories.lose_destination, goal, DESTINATION, "tail")
        )
    found += [
        Case(topology, "too few nodes", stories.refused, goal, goal),
        Case(topology, "cancel", stories.cancelled, goal, "-", "tail"),
        Case(topology, f"{stories.MOVES_THERE_AND_BACK} moves there and back", stories.there_and_back),
    ]
    found += [Case(topology, "kill -9", stories.kill_operator, goal, OPERATOR, stage) for stage in ORDER]
    return found


class Matrix:
    """Runs rows and keeps what they found."""

    def __init__(self, say: Callable[[str], None], rate: float, tries: int) -> None:
        self.rows: list[Row] = []
        self._say, self._rate, self._tries = say, rate, tries
        self._site: Site | None = None
        self._kind = ("", False)
        self._stack = ExitStack()
        self._sites = 0

    @staticmethod
    def cases(topologies: Sequence[str], only: str) -> list[Case]:
        return [case for topology in topologies for case in cases_of(topology) if only in case.name]

    def run(self, cases: Sequence[Case], directory: Path, stack: ExitStack) -> None:
        """Every case, each until its stage was hit or it was tried often enough; the table grows with each."""
        stack.callback(self._drop)
        for number, case in enumerate(cases, 1):
            for attempt in range(1, self._tries + 1):
                again = f", attempt {attempt}" if attempt > 1 else ""
                self._say(f"row {number} of {len(cases)}: {case.name}{again}")
                row = self._run(case, directory)
                self._say(f"  {row.line}")
                for text in row.wrongs:
                    self._say(f"  WRONG: {text}")
                if row.is_hit or not row.is_right:
                    break

    def _run(self, case: Case, directory: Path) -> Row:
        row = case.row()
        self.rows.append(row)
        try:
            site = self._site_for(case, directory)
            arguments = (case.goal,) if case.goal else ()
            case.story(site, row, *arguments, rate=self._rate)
        except Exception as error:
            row.wrongs.append(f"{type(error).__name__}: {error}")
        if not row.is_right:
            self._drop()  # What it left behind is nobody's else's trouble.
        return row

    def _site_for(self, case: Case, directory: Path) -> Site:
        kind = (case.topology, case.has_operator)
        if self._site is not None and self._kind == kind:
            self._site.wait_ready()
            return self._site
        self._drop()
        self._sites += 1
        began = time.monotonic()
        folder, sizes = directory / f"brokers-{self._sites}", TOPOLOGIES[case.topology]
        folder.mkdir()
        if case.has_operator:
            plane = PlaneSite(folder, sizes, self._stack, self._say)
            self._stack.callback(plane.close)
            plane.start()
            self._site = plane
        else:
            self._site = self._stack.enter_context(DirectSite(folder, sizes))
        self._kind = kind
        self._say(f"{case.topology}: brokers are ready after {time.monotonic() - began:.1f} s")
        return self._site

    def _drop(self) -> None:
        self._site = None
        self._stack.close()
