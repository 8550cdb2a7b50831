"""The leader is killed with 3,500 messages a second coming in: the stall, and what was lost or repeated.

Half of the messages are plain and half are acknowledged under a Nats-Msg-Id, all through brokers that stay up.
"""

from __future__ import annotations

from benchmarks.client import leader_of, make_stream, wait_for_jetstream
from benchmarks.course import Course
from benchmarks.load import PLAIN, REPEATED, Load, audit
from benchmarks.servers import Fleet
from benchmarks.table import Row, Target

RATE = 3_500
BEFORE_SECONDS, AFTER_SECONDS = 4.0, 10.0
TICK_SECONDS = 0.01


def run_once(fleet: Fleet) -> tuple[float, int, int]:
    """(longest stall in seconds, messages lost, messages repeated)."""
    wait_for_jetstream(fleet.urls[0])
    make_stream(fleet.urls[0], "F", ["f.>"], 3)
    leader = leader_of(fleet.urls[0], "F")
    staying = fleet.others(leader)
    load = Load({REPEATED: staying[0].url, PLAIN: staying[1].url}, RATE)
    try:
        killed = False
        while (now := load.step(TICK_SECONDS)) < load.started + BEFORE_SECONDS + AFTER_SECONDS:
            if not killed and now - load.started > BEFORE_SECONDS:
                fleet.by_name(leader).kill()
                killed = True
        load.finish()
        stall_ms = load.longest_gap_ms(load.started, now)
    finally:
        load.close()
    ledger = audit([broker.url for broker in staying], "F", load)
    return stall_ms / 1000, sum(ledger.lost.values()), ledger.repeated


def failover(course: Course) -> list[Row]:
    stall = Row(
        "leader killed under 3,500 msg/s: longest time without an answer", "s", Target(1.5, at_least=False)
    )
    lost = Row("the same: messages lost", "messages", Target(0, at_least=False), by_worst=True)
    repeated = Row("the same: messages repeated", "messages", Target(0, at_least=False), by_worst=True)
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            with fleet_type(course.directory / f"{kind}-{run}", 3) as fleet:
                figures = run_once(fleet)
                for row, value in zip((stall, lost, repeated), figures, strict=True):
                    row.add(kind, value)
    lost.note = (
        "half plain, half acknowledged and repeated, all through brokers that stay up; the worst run counts"
    )
    return [stall, lost, repeated]
