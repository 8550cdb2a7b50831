"""The stories: each makes trouble for a cutover under load, and notes in its row what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable

from e2e.cutover.course import RATE, VICTIM, Running, check_end, under_load
from e2e.cutover.kinds import MODES, PLAIN
from e2e.cutover.pair import Pair
from e2e.cutover.rows import Row
from e2e.moves.site import Site

Say = Callable[[str], None]
PAUSE_SECONDS = 5.0
"""Shorter than publishes wait for a stream without a leader."""
CUT_SECONDS = 20.0
BY_LEADERS = ("learning", "fenced", "handed", "open")
"""Stages that leaders of streams log; the others are the migration's as a whole."""
STAGES = (*BY_LEADERS, "redirected", "final")


def _to(running: Running, stage: str) -> str:
    """Start the migration and return when the stage is there: the broker of blue that leads the stream."""
    running.start_migration()
    if stage in BY_LEADERS:
        return running.wait_for_stage(stage)
    running.wait_for_open()
    running.wait_for_redirects()
    if stage == "final":
        running.finalize()
    return ""


def finish(running: Running) -> None:
    """To the end that a cutover has to have."""
    running.wait_for_open()
    running.flow()
    running.wait_for_redirects()
    running.flow()
    if running.row.stage != "final":
        differs = running.pair.proof()
        if differs:
            running.row.wrongs.append(f"before the point of no return: {differs}")
        running.finalize()
    running.wait_for_end()
    running.row.ended = "cleaned"
    check_end(running)


def clean(pair: Pair, row: Row, say: Say, rate: float = RATE) -> None:
    """Nobody makes trouble."""
    with under_load(pair, row, say, rate) as running:
        running.start_migration()
        finish(running)


def kill_blue(pair: Pair, row: Row, say: Say, rate: float = RATE) -> None:
    """kill -9 of the leader of a stream on blue."""
    _trouble(
        pair, row, say, rate, lambda running, leader: _kill(running, pair.blue, leader or _led(pair.blue))
    )


def kill_green(pair: Pair, row: Row, say: Say, rate: float = RATE) -> None:
    """kill -9 of a broker of green: the stream's leader, once there is one."""
    _trouble(pair, row, say, rate, lambda running, _: _kill(running, pair.green, _green_victim(running)))


def pause_blue(pair: Pair, row: Row, say: Say, rate: float = RATE) -> None:
    """SIGSTOP of the leader of a stream on blue, for some seconds."""
    _trouble(
        pair, row, say, rate, lambda running, leader: _pause(running, pair.blue, leader or _led(pair.blue))
    )


def pause_green(pair: Pair, row: Row, say: Say, rate: float = RATE) -> None:
    """SIGSTOP of a broker of green, for some seconds."""
    _trouble(pair, row, say, rate, lambda running, _: _pause(running, pair.green, _green_victim(running)))


def cut_link(pair: Pair, row: Row, say: Say, rate: float = RATE) -> None:
    """Nothing gets through between blue and green, for 20 seconds."""

    def trouble(running: Running, _: str) -> None:
        pair.cut()
        try:
            running.row.hit = running.watch.last(VICTIM) if row.stage in BY_LEADERS else row.stage
            time.sleep(CUT_SECONDS)
        finally:
            pair.heal()

    _trouble(pair, row, say, rate, trouble)


def kill_operator(pair: Pair, row: Row, say: Say, rate: float = RATE) -> None:
    """kill -9 of the operator; another one is started at once."""

    def trouble(running: Running, _: str) -> None:
        pair.kill_operator()
        running.row.hit = running.watch.last(VICTIM) if row.stage in BY_LEADERS else row.stage
        pair.start_operator()

    _trouble(pair, row, say, rate, trouble)


def _trouble(pair: Pair, row: Row, say: Say, rate: float, trouble: Callable[[Running, str], None]) -> None:
    with under_load(pair, row, say, rate) as running:
        leader = _to(running, row.stage)
        trouble(running, leader)
        say(f"  {row.event}: {row.victim} at {row.hit}")
        finish(running)


def _led(side: Site) -> str:
    """A broker to make trouble for when no leader has said anything: any but the first."""
    return side.names[-1]


def _green_victim(running: Running) -> str:
    green = running.pair.green
    if running.row.stage in ("learning", "fenced", "handed"):
        return green.names[0]
    return green.leader(VICTIM)


def _kill(running: Running, side: Site, victim: str) -> None:
    plain_at = running.load.hosts()[MODES[PLAIN]]
    if side.host(victim) == plain_at:
        # It is to stay up for its plain publisher (SF-2).
        running.row.hit = f"not killed: the plain publisher is at {victim}"
        return
    running.pair.kill(side, victim)
    running.row.hit = _hit(running)
    running.pair.bring_back(side, victim)


def _pause(running: Running, side: Site, victim: str) -> None:
    running.pair.pause(side, victim)
    try:
        running.row.hit = _hit(running)
        time.sleep(PAUSE_SECONDS)
    finally:
        running.pair.resume(side, victim)


def _hit(running: Running) -> str:
    stage = running.row.stage
    return running.watch.last(VICTIM) if stage in BY_LEADERS else stage
