"""What goes wrong with one group stays with it: the broker and its other groups go on."""

from __future__ import annotations

from typing import Any

import pytest

from supercluster.broker.jetstream.core import BrokerCore, CoreSettings
from supercluster.broker.raft.errors import DiskError


class Nothing:
    """A volume without groups, a network without peers, and a clock that stands."""

    incarnation = "vol"
    process_count = 3

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def registered(self) -> dict[str, str]:
        return {}

    def forget(self, group: str) -> None:
        self.forgotten.append(group)

    def now_ns(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        return 1000

    def send(self, *frame: Any) -> bool:
        return False

    def randrange(self, start: int, /) -> int:
        return 0

    def getrandbits(self, k: int, /) -> int:
        return 0


class BrokenGroup:
    """A group whose disk fails whatever is asked of it; `fail` takes it out."""

    id = "g"
    member = "n@vol"
    serves = False

    def __init__(self) -> None:
        self.failed: DiskError | None = None
        self.log = self.raft = self
        self.ticks = 0

    def tick(self, now_ms: int) -> bool:
        self.ticks += 1
        raise DiskError("no space left", "/data/g")

    def destroy(self) -> None:
        raise DiskError("busy", "/data/g")

    def fail(self, error: DiskError) -> None:
        self.failed = error

    def deadline_ms(self) -> int:
        return 0

    def turn(self, now_ms: int) -> None: ...

    def stop(self) -> None: ...


@pytest.fixture
def events() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def core(events: list[tuple[str, str]]) -> BrokerCore:
    nothing = Nothing()
    settings = CoreSettings("n", "east", ("a", "b", "c"))
    found = BrokerCore(
        settings,
        nothing,  # type: ignore[arg-type]  # Only what a core without groups asks of a volume and a network.
        nothing,  # type: ignore[arg-type]
        nothing,
        nothing,
        lambda group, reason, text: events.append((group, reason)),
    )
    found.groups["g"] = BrokenGroup()  # type: ignore[assignment]  # Stands in for a group.
    return found


@pytest.mark.covers("SF-4", "SF-18")
def test_a_disk_error_takes_out_its_group_and_not_the_broker(core: BrokerCore) -> None:
    group: Any = core.groups["g"]
    core.tick()
    assert "no space left" in str(group.failed)
    core.tick()
    assert group.ticks == 1, "a group that is out is not asked again"
    assert core.next_deadline_ms() > 0


def test_files_that_cannot_be_removed_are_said(core: BrokerCore, events: list[tuple[str, str]]) -> None:
    core.life._remove("g")
    assert events == [("g", "DiskFailed")]
    assert "g" not in core.groups


def test_garbage_of_a_linked_broker_is_dropped_whole(core: BrokerCore, events: list[tuple[str, str]]) -> None:
    del core.groups["g"]
    for kind in range(32, 60):
        for body in (b"\xff" * 7, b"\x03\x00abc" + b"\xff" * 40, b"\x01\x00\xff" + b"\x00" * 60):
            core.on_frame("n2", kind, memoryview(body))
    assert {reason for _, reason in events} == {"BadFrame"}
    core.tick()


def test_request_numbers_never_come_again_after_a_restart(core: BrokerCore) -> None:
    assert next(core.requests._numbers) == (3 << 32) + 1
