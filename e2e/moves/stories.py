"""The stories of the matrix: each makes trouble for a move under load, and notes in its row what came of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence

from e2e.moves.course import (
    CANCELLING,
    RATE,
    SMALL,
    STAGE_SECONDS,
    STAGES,
    Running,
    check_end,
    check_home,
    stream_under_load,
)
from e2e.moves.ledger import ACKNOWLEDGED, MODES, PLAIN, REPEATED
from e2e.moves.plane import PlaneSite
from e2e.moves.publishers import Counts
from e2e.moves.rows import Row
from e2e.moves.site import REPLICAS, CallRefusedError, DirectSite, Site, until

COPYING = ("learning", "tail")
NO_SUITABLE_PEERS = 10005
MOVES_THERE_AND_BACK = 10
FLOW_BETWEEN = 500
RATE_WITH_READER = 900.0


def to_stage(running: Running, stage: str, goal: str) -> str:
    """Start the move and return when its leader enters the stage: the leader's name."""
    running.start_move(goal)
    if stage == CANCELLING:
        running.wait_for_stage("tail")
        running.cancel()
    leader = running.wait_for_stage(stage)
    if stage in COPYING:
        running.wait_for_copying(stage)
    return leader


def finish(running: Running, stage: str, goal: str) -> None:
    """Wait for the end that such a move has to have."""
    report = running.wait_for_end()
    if stage == CANCELLING:
        check_end(running, report, "cancelled", running.site.origin)
    else:
        check_end(running, report, "done", goal)


def undisturbed(
    site: Site,
    row: Row,
    goal: str,
    rate: float = RATE,
    modes: Collection[int] = (PLAIN, ACKNOWLEDGED, REPEATED),
) -> None:
    """Nobody makes trouble."""
    with stream_under_load(site, row, SMALL, rate, modes=modes) as running:
        running.start_move(goal)
        check_end(running, running.wait_for_end(), "done", goal)


def kill_leader(site: Site, row: Row, goal: str, rate: float = RATE, *, reads: bool = False) -> None:
    """kill -9 of the stream's leader the moment it enters the stage; it comes back once another one leads."""
    with stream_under_load(site, row, STAGES[row.stage], rate, reads=reads) as running:
        victim = to_stage(running, row.stage, goal)
        if victim == running.led_by or (victim and site.cluster_of(victim) == goal):
            site.kill(victim)
            row.hit = running.watch.last(running.move, victim)
            site.leader(running.stream, other_than=victim)
            site.bring_back(victim)
        else:
            # Passed by, or led by a broker that is to stay up for its publishers (SF-2).
            row.hit = f"not killed: {victim or 'nobody'} leads"
        finish(running, row.stage, goal)


def kill_leader_of_reader(site: Site, row: Row, goal: str, rate: float = RATE) -> None:
    """The same with a consumer at work, more slowly: each of its acknowledgements is a message for all replicas, too."""
    kill_leader(site, row, goal, min(rate, RATE_WITH_READER), reads=True)


def kill_destination(site: Site, row: Row, goal: str, rate: float = RATE) -> None:
    """kill -9 of a broker that a copy goes to, and that does not lead; it is started again at once."""
    with stream_under_load(site, row, STAGES[row.stage], rate) as running:
        leader = to_stage(running, row.stage, goal)
        victim = next((node for node in _destinations(running, goal) if node != leader), "")
        if victim:
            site.kill(victim)
            row.hit = running.watch.last(running.move)
            site.bring_back(victim)
        else:
            row.hit = "not killed: no targets"
        finish(running, row.stage, goal)


def _destinations(running: Running, goal: str) -> list[str]:
    """Brokers that the move names. Nobody is asked: that takes longer than some stages last."""
    running.watch.look()
    found = running.watch.targets.get(running.stream, [])
    return [name for name in found if running.site.cluster_of(name) == goal]


def lose_destination(site: Site, row: Row, goal: str, rate: float = RATE) -> None:
    """kill -9 of a destination node that stays away: another node of its cluster takes its place."""
    with stream_under_load(site, row, STAGES[row.stage], rate) as running:
        to_stage(running, row.stage, goal)
        victim = _destinations(running, goal)[0]
        site.kill(victim)
        row.hit = running.watch.last(running.move)
        report = running.wait_for_end()
        site.bring_back(victim)
        check_end(running, report, "done", goal)
        if victim in site.members(running.stream):
            row.wrongs.append(f"{victim}, which was gone, is a member")


def kill_operator(site: PlaneSite, row: Row, goal: str, rate: float = RATE) -> None:
    """kill -9 of the operator the moment the move enters the stage; another one is started at once."""
    with stream_under_load(site, row, STAGES[row.stage], rate) as running:
        running.start_move(goal)
        running.move = running.wait_for_any()
        if row.stage == CANCELLING:
            running.wait_for_stage("tail")
            running.cancel()
        running.wait_for_stage(row.stage)
        if row.stage in COPYING:
            running.wait_for_copying(row.stage)
        site.kill_operator()
        row.hit = running.watch.last(running.move)
        site.start_operator()
        finish(running, row.stage, goal)
        site.settle(running.stream, running.move, site.origin if row.stage == CANCELLING else goal)


def partition(site: DirectSite, row: Row, goal: str, rate: float = RATE) -> None:
    """Origin and destination are cut off from each other from the stage on, until both sides have noticed."""
    origin, destination = site.clusters[site.origin], site.clusters[goal]
    with stream_under_load(site, row, STAGES[row.stage], rate) as running:
        to_stage(running, row.stage, goal)
        site.cut(origin, destination)
        row.hit = running.watch.last(running.move)
        try:
            for side, lost in ((origin, destination), (destination, origin)):
                _miss(site, side, len(site.names) - 1 - len(lost))
            if row.hit in ("planned", "learning", "tail", "comparing"):
                running.flow()  # The origin alone decides: publishing goes on.
        finally:
            site.heal()
        finish(running, row.stage, goal)


def _miss(site: Site, names: Sequence[str], left: int) -> None:
    """Until each of these brokers is linked with so many others only."""
    for name in names:
        until(lambda n=name: site.remotes(n) == left, f"{name} to have {left} links", STAGE_SECONDS)  # type: ignore[misc]


def refused(site: DirectSite, row: Row, goal: str, rate: float = RATE) -> None:
    """Brokers of the destination are down, until too few are left: refused, naming each; nothing else happens."""
    names = site.clusters[goal]
    down = names[: len(names) - REPLICAS + 1]
    with stream_under_load(site, row, SMALL, rate) as running:
        for name in down:
            site.kill(name)
        others = [name for name in site.names if name not in down]
        _miss(site, others, len(others) - 1)
        try:
            site.start_move(running.stream, running.move, goal)
            row.wrongs.append("the move was not refused")
        except CallRefusedError as refusal:
            row.ended = f"refused, {refusal.said.get('err_code')}"
            named = set(re.findall(r"[a-z]+-\d+", str(refusal.said.get("error"))))
            if refusal.said.get("err_code") != NO_SUITABLE_PEERS or named != set(site.names):
                row.wrongs.append(
                    f"the refusal has to be {NO_SUITABLE_PEERS} and name every broker: {refusal.said}"
                )
        running.flow()
        if site.move_call("GET", running.stream)["move"] is not None:
            row.wrongs.append("a move runs nevertheless")
        for name in down:
            site.bring_back(name)
        check_home(running, site.origin)


def cancelled(site: Site, row: Row, goal: str, rate: float = RATE) -> None:
    """Cancelled at a stage before the hand-over: back to where it was."""
    with stream_under_load(site, row, STAGES[row.stage], rate) as running:
        to_stage(running, row.stage, goal)
        row.hit = running.watch.last(running.move)
        running.cancel()
        check_end(running, running.wait_for_end(), "cancelled", site.origin)


def check_went_on(running: Running, before: dict[int, Counts]) -> None:
    """Every publisher was served while the stream moved, each by itself, and refused nothing (MV-8)."""
    for mode, found in running.load.counts().items():
        if not found.went_on_since(before[mode]):
            running.row.wrongs.append(
                f"{running.move}: the {MODES[mode]} publisher was at {before[mode]} before and {found} after the move"
            )


def there_and_back(site: Site, row: Row, moves: int = MOVES_THERE_AND_BACK, rate: float = RATE) -> None:
    """So many moves one after the other, through all clusters and back, with the publishers at work all the time."""
    around = itertools.cycle([*list(site.clusters)[1:], site.origin])
    with stream_under_load(site, row, SMALL, rate) as running:
        for number, goal in zip(range(1, moves + 1), around, strict=False):
            running.move = f"{running.stream}-{number}"
            before = running.load.counts()
            running.start_move(goal)
            check_end(running, running.wait_for_end(), "done", goal)
            check_went_on(running, before)
            running.flow(FLOW_BETWEEN)
