"""Publishing with acknowledgements through the stream's leader, and pulling in batches: ours and nats-server in turns."""

from __future__ import annotations

from benchmarks.client import leader_of, make_stream, publish_acknowledged, pull, wait_for_jetstream
from benchmarks.course import Course
from benchmarks.table import Row, Target

WARM_UP = 5_000
PUBLISHED = {3: 100_000, 1: 200_000}
PULLED = 200_000


def publish_rows() -> dict[int, Row]:
    return {
        3: Row(
            "publish acknowledged, R3 file, 128 B, 1,000 in flight",
            "msg/s",
            Target(0.3, at_least=True, of_ratio=True),
        ),
        1: Row(
            "publish acknowledged, R1 file, 128 B, 1,000 in flight",
            "msg/s",
            Target(0.2, at_least=True, of_ratio=True),
        ),
    }


def publish(course: Course, replicas: int) -> list[Row]:
    row = publish_rows()[replicas]
    for run in range(course.runs):
        for kind, fleet_type in course.fleets.items():
            with fleet_type(course.directory / f"{kind}-{run}", replicas) as fleet:
                wait_for_jetstream(fleet.urls[0])
                make_stream(fleet.urls[0], "B", ["b.>"], replicas)
                leader = fleet.by_name(leader_of(fleet.urls[0], "B")) if replicas > 1 else fleet.brokers[0]
                publish_acknowledged(leader.url, "b.warm", WARM_UP)
                row.add(kind, publish_acknowledged(leader.url, "b.x", PUBLISHED[replicas]))
    return [row]


def publish_r3(course: Course) -> list[Row]:
    return publish(course, 3)


def publish_r1(course: Course) -> list[Row]:
    return publish(course, 1)


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
