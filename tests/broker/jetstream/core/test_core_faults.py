"""What goes wrong with one group stays with it: the broker and its other groups go on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame, ResponseStatus
from supercluster.broker.jetstream.turn.slices import UNITS_PER_TURN, Job
from supercluster.broker.ports import Channel, ClientInfo
from supercluster.broker.raft.config import Role
from supercluster.broker.raft.errors import DiskError


class Nothing:
    """A volume without groups, a network without peers, and a clock that stands."""

    incarnation = "vol"
    process_count = 3

    def __init__(self) -> None:
        self.now_ms = 1000
        self.forgotten: list[str] = []
        self.sent: list[tuple[str, int, bytes]] = []
        self.published: list[bytes] = []

    def tick(self, now_ms: int) -> None: ...

    def note(self) -> bytes:
        return b""

    def registered(self) -> dict[str, str]:
        return {}

    def has_interest(self, account: str, subject: bytes, queue: bytes = b"") -> bool:
        return False

    def forget(self, group: str) -> None:
        self.forgotten.append(group)

    def now_ns(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        return self.now_ms

    def machine_ms(self) -> int:
        return self.now_ms

    def send(self, node: str, frame: int, body: list[bytes | memoryview], channel: Channel) -> bool:
        self.sent.append((node, frame, b"".join(body)))
        return False

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self.published.append(payload)

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

    def is_due_to_stand(self, now_ms: int) -> bool:
        return False

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

    def stop(self, *, is_deleted: bool = False) -> None: ...

    def discarding(self) -> Job:
        yield from ()


@pytest.fixture
def events() -> list[tuple[str, str]]:
    return []


@pytest.fixture
def nothing() -> Nothing:
    return Nothing()


@pytest.fixture
def core(nothing: Nothing, events: list[tuple[str, str]]) -> BrokerCore:
    settings = CoreSettings("n", "east", ("a", "b", "c"))
    found = BrokerCore(
        settings,
        nothing,  # type: ignore[arg-type]  # Only what a core without groups asks of a volume and a network.
        nothing,  # type: ignore[arg-type]
        nothing,
        nothing,
        lambda group, reason, text: events.append((group, reason)),
    )
    found.copies.add(BrokenGroup())  # type: ignore[arg-type]  # Stands in for a group.
    return found


@pytest.mark.covers("SF-4", "SF-18")
def test_a_disk_error_takes_out_its_group_and_not_the_broker(core: BrokerCore) -> None:
    group: Any = core.groups["g"]
    core.tick()
    assert "no space left" in str(group.failed)
    core.copies.touch("g")
    core.tick()
    assert group.ticks == 1, "a group that is out is not asked again"
    assert core.next_deadline_ms() > 0


class SlowGroup:
    """A group whose turn takes its time: a checkpoint of much that is alive."""

    failed = None
    serves = False
    raft = SimpleNamespace(role=Role.FOLLOWER)

    def __init__(self, name: str, nothing: Nothing, order: list[str]) -> None:
        self.id = name
        self._nothing = nothing
        self._order = order

    def turn(self, now_ms: int) -> None:
        self._order.append(self.id)
        self._nothing.now_ms += 20

    def tick(self, now_ms: int) -> bool:
        return False

    def deadline_ms(self) -> int | None:
        return None

    def discarding(self) -> Job:
        yield from ()


@pytest.mark.covers("RP-3", "SF-7")
def test_many_slow_groups_do_not_keep_a_turn_from_its_end(core: BrokerCore, nothing: Nothing) -> None:
    order: list[str] = []
    core.copies.drop("g")
    names = [f"g{number}" for number in range(8)]
    for name in names:
        core.copies.add(SlowGroup(name, nothing, order))  # type: ignore[arg-type]  # Stands in for a group.
    core.turn()
    assert order == names[:3], "60 ms are enough for one turn"
    assert core.has_work
    core.copies.touch("g0")
    core.turn()
    assert order == names[:6], "who waited comes first"
    core.turn()
    assert order == [*names, "g0"]
    assert not core.has_work


class InsatiableGroup(SlowGroup):
    """A group that has a backlog."""

    def __init__(self, core: BrokerCore, nothing: Nothing, order: list[str]) -> None:
        super().__init__("g", nothing, order)
        self._core = core

    def turn(self, now_ms: int) -> None:
        self._order.append(self.id)
        self._core.copies.touch_next(self.id)


@pytest.mark.covers("MV-8", "MV-11")
def test_a_backlog_is_worked_off_a_piece_a_turn_with_sockets_served_in_between(
    core: BrokerCore, nothing: Nothing
) -> None:
    order: list[str] = []
    core.copies.drop("g")
    core.copies.add(InsatiableGroup(core, nothing, order))  # type: ignore[arg-type]  # Stands in for a group.
    for turns in range(1, 4):
        core.turn()
        assert order == ["g"] * turns
        assert core.has_work, "the next turn comes without any new input"


@pytest.mark.covers("SF-29")
def test_a_long_job_goes_on_with_each_turn_until_it_ends_or_its_group_goes(
    core: BrokerCore, nothing: Nothing
) -> None:
    group: Any = SlowGroup("g", nothing, [])
    done: list[str] = []
    core.copies.drop("g")
    core.copies.add(group)

    def job() -> Job:
        try:
            for _ in range(9):
                done.append("slice")
                yield UNITS_PER_TURN
        finally:
            done.append("end")

    core.copies.slices.begin(group, job())
    for turns in range(1, 4):
        assert core.has_work, "the next turn comes without any new input"
        core.turn()
        assert done == ["slice"] * turns
    core.copies.drop("g")
    assert done[-1] == "end"
    core.turn()
    assert not core.has_work


@pytest.mark.covers("RP-3", "MV-11")
def test_a_slow_intake_does_not_take_the_groups_their_turns(
    core: BrokerCore, nothing: Nothing, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    core.copies.drop("g")
    for name in ("g0", "g1"):
        core.copies.add(SlowGroup(name, nothing, order))  # type: ignore[arg-type]  # Stands in for a group.

    def slow(now_ms: int) -> None:
        nothing.now_ms += 60

    monkeypatch.setattr(core.ingest, "flush", slow)
    core.turn()
    assert order == ["g0"]
    core.turn()
    assert order == ["g0", "g1"]


def test_files_that_cannot_be_removed_are_said(core: BrokerCore, events: list[tuple[str, str]]) -> None:
    core.copy_manager._remove("g")
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


def request_frame(origin: str, number: int) -> memoryview:
    info = ClientInfo("$G", "u", is_operator=False)
    asked = frames.Request(origin, number, "g", info, b"$JS.API.STREAM.INFO.S", b"r", b"", b"")
    return memoryview(b"".join(frames.encode_request(asked)))


@pytest.mark.covers("SF-10", "SF-14")
def test_an_answer_to_a_broker_is_none_to_the_one_on_its_next_volume(
    core: BrokerCore, nothing: Nothing
) -> None:
    group: Any = core.groups["g"]
    group.serves = True
    core.answers.answered(("n2", "lost", 7), ResponseStatus.ANSWER, b"to the lost one")
    core.on_frame("n2", Frame.REQUEST, request_frame("lost", 7))
    assert [(node, frame) for node, frame, _ in nothing.sent] == [("n2", Frame.RESPONSE)]
    core.on_frame("n2", Frame.REQUEST, request_frame("new", 7))
    assert len(nothing.sent) == 1, "another request, though its number is the same"


@pytest.mark.covers("SF-10", "SF-14")
def test_a_broker_takes_no_answer_to_the_one_on_its_lost_volume(core: BrokerCore, nothing: Nothing) -> None:
    info = ClientInfo("$G", "u", is_operator=False)
    core.requests.send("g", info, b"$JS.API.STREAM.CREATE.S", b"reply", b"", b"{}", 0)
    for origin in ("lost", nothing.incarnation):
        answer = frames.encode_response(origin, (3 << 32) + 1, ResponseStatus.ANSWER, origin.encode())
        core.on_frame("n2", Frame.RESPONSE, memoryview(b"".join(answer)))
    assert nothing.published == [b"vol"]


@pytest.mark.parametrize("subject", [b"$JS.ACK.S.c.1.1.1.1", b"$JS.ACK.NONE.c.1.1.1.1.1"])
def test_an_acknowledgement_that_is_none_is_answered_as_if_nobody_listened(
    core: BrokerCore, nothing: Nothing, monkeypatch: pytest.MonkeyPatch, subject: bytes
) -> None:
    told: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr(
        nothing, "publish", lambda account, subject, reply, header, payload: told.append((subject, header))
    )
    info = ClientInfo("$G", "app", is_operator=False)
    core.on_api(info, subject, b"", b"", b"+ACK")
    assert told == []
    core.on_api(info, subject, b"_R", b"", b"+ACK")
    assert told == [(b"_R", b"NATS/1.0 503\r\nNats-Subject: " + subject + b"\r\n\r\n")]
