"""Publishing with acknowledgements through the stream's leader, and pulling in batches: ours and nats-server in turns."""

from __future__ import annotations

from benchmarks.client import (
    BenchError,
    RawClient,
    leader_of,
    make_stream,
    publish_acknowledged,
    pull,
    wait_for_jetstream,
)
from benchmarks.course import Course
from benchmarks.table import Row, Target

WARM_UP = 5_000
PUBLISHED = {3: 100_000, 1: 200_000}
PULLED = 200_000


def publish(course: Course, replicas: int, bound: float) -> list[Row]:
    """Messages that are all alike, which have the target, and messages of which each is different."""
    what = f"publish acknowledged, R{replicas} file, 128 B, 1,000 in flight"
    alike = Row(what, "msg/s", Target(bound, at_least=True, of_ratio=True))
    distinct = Row(f"{what}, each message different", "msg/s")
    distinct.note = (
        "64 subjects, and a reply subject and random bytes for each message, as NATS libraries send them"
    )
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            with fleet_type(course.directory / f"{kind}-{run}", replicas) as fleet:
                wait_for_jetstream(fleet.urls[0])
                make_stream(fleet.urls[0], "B", ["b.>"], replicas)
                leader = fleet.by_name(leader_of(fleet.urls[0], "B")) if replicas > 1 else fleet.brokers[0]
                count = PUBLISHED[replicas]
                publish_acknowledged(leader.url, "b.warm", WARM_UP)
                alike.add(kind, publish_acknowledged(leader.url, "b.x", count))
                distinct.add(kind, publish_acknowledged(leader.url, "b.y", count, distinct=True))
                check_stored(leader.url, "B", WARM_UP + 2 * count)
    return [alike, distinct]


def check_stored(url: str, stream: str, count: int) -> None:
    """What was acknowledged has to be there.

    Raises:
        BenchError: the stream holds another number of messages.
    """
    with RawClient(url) as client:
        held = client.request(f"$JS.API.STREAM.INFO.{stream}")["state"]["messages"]
    if held != count:
        raise BenchError(f"stream {stream} holds {held} messages, {count} were acknowledged")


def publish_r3(course: Course) -> list[Row]:
    return publish(course, 3, 0.3)


def publish_r1(course: Course) -> list[Row]:
    return publish(course, 1, 0.2)


def pull_r1(course: Course) -> list[Row]:
    row = Row(
        "pull in batches of 1,000, R1 file, 128 B, no acks",
        "msg/s",
        Target(0.2, at_least=True, of_ratio=True),
    )
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            with fleet_type(course.directory / f"{kind}-{run}", 1) as fleet:
                wait_for_jetstream(fleet.urls[0])
                make_stream(fleet.urls[0], "B", ["b.>"], 1)
                publish_acknowledged(fleet.urls[0], "b.x", PULLED)
                row.add(kind, pull(fleet.urls[0], "B", PULLED))
    return [row]
