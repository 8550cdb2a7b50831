"""What happens to messages that wait while the map of streams changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.encoding.sections import (
    Exceptional,
    SessionKey,
    Verdict,
    VerdictRun,
    count_of,
    decode_block,
)
from supercluster.broker.jetstream.links.frames import Frame, decode_forward, decode_open
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Following, StreamMigration, StreamStage
from supercluster.broker.jetstream.publish.stand_ins import ComingStream, HeldCapture
from supercluster.broker.jetstream.publish.window import SessionPhase, Window
from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.net.routing.held_messages import HeldMessages
from supercluster.broker.protocol.headers import NO_RESPONDERS
from supercluster.broker.protocol.parser import Message

ACCOUNT, SUBJECT = "$G", b"orders.1"


def assignment(group: str) -> Assignment:
    config = StreamConfig(name="orders", subjects=("orders.>",))
    return Assignment(ACCOUNT, "orders", group, config, 1, ("n0@a",), 1)


class Client:
    """A connection: keeps routes until it is told to forget them, and what a full stream did not take."""

    def __init__(self, ingest: PublishWindows) -> None:
        self.ingest = ingest
        self.routes: dict[bytes, Window | HeldCapture | ComingStream | None] = {}
        self.held: list[bytes] = []
        self.uncaptured: list[bytes] = []
        self.errors: list[str] = []

    def publish(self, payload: bytes) -> None:
        if self.held or not self.offer(payload):
            self.held.append(payload)

    def offer(self, payload: bytes) -> bool:
        if SUBJECT not in self.routes:
            self.routes[SUBJECT] = self.ingest.capture(ACCOUNT, SUBJECT)
        window = self.routes[SUBJECT]
        if window is None:
            self.uncaptured.append(payload)
            return True
        return window.take(self, SUBJECT, b"", b"", payload)

    def pause(self, stream: str) -> None:
        pass

    def resume(self, stream: str) -> None:
        while self.held and self.offer(self.held[0]):
            del self.held[0]

    def error(self, text: str) -> None:
        self.errors.append(text)


class Nobody:
    """A network without clients."""

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        pass


def ingest(leader: str | None = None, window_bytes: int = 200) -> PublishWindows:
    return PublishWindows(
        SessionKey("n0", "a", 1),
        Nobody(),  # type: ignore[arg-type]  # Only refusals are published here.
        lambda node, frame, body: True,
        lambda group: leader,
        lambda group: [],
        window_bytes=window_bytes,
        wait_ms=10_000,
    )


@pytest.mark.covers("SF-14", "SF-3")
def test_what_is_held_while_the_map_is_read_goes_to_its_stream_before_what_comes_later() -> None:
    found = ingest()
    client = Client(found)
    found.set_map([assignment("S.1")], client.routes.clear)
    client.publish(b"first")
    found.hold()
    client.routes.clear()
    client.publish(b"held")
    assert client.held == [b"held"]
    found.release(client.routes.clear)
    assert client.held == []
    client.publish(b"later")
    assert found.windows["S.1"].unconfirmed == 3


@pytest.mark.covers("SF-15")
def test_what_waits_for_a_stream_that_was_made_anew_goes_to_the_new_one() -> None:
    found = ingest()
    client = Client(found)
    found.set_map([assignment("S.1")], client.routes.clear)
    for number in range(4):
        client.publish(b"%d" % number)
    assert client.held == [b"3"], "the window is full"
    found.set_map([assignment("S.2")], client.routes.clear)
    new = found.windows["S.2"]
    assert new.unconfirmed == 3, "what the old window held"
    found.flush(0)
    found.tick(20_000)
    assert client.held == []
    assert new.unconfirmed == 4, "what waited for the old window"


@pytest.mark.covers("SF-15")
def test_what_waits_for_a_deleted_stream_is_not_taken_by_its_window() -> None:
    found = ingest()
    client = Client(found)
    found.set_map([assignment("S.1")], client.routes.clear)
    for number in range(4):
        client.publish(b"%d" % number)
    waiting = list(client.held)
    found.set_map([], client.routes.clear)
    assert (client.held, client.uncaptured) == ([], waiting)


HERE, THERE = "S.$G.orders.1", "S.$G.orders.1~1-0a1b2c3d"
NEAR, FAR = SessionKey("n0", "a", 1), SessionKey("n0%b1b1b1b1", "a", 1)


def far_assignment() -> Assignment:
    """Of a stream that green has."""
    way = StreamMigration("m", 1, StreamStage.OPEN, "9e9e9e9e", HERE, THERE)
    return replace(assignment(THERE), migration=way, version=7)


class Wire:
    """Who leads what, and what windows send there."""

    def __init__(self, **leaders: str) -> None:
        self.leaders = leaders
        self.sent: list[tuple[str, str, SessionKey, int]] = []
        """(broker, group, session, number of each message; 0: the session is opened)"""
        self.refused: list[tuple[bytes, bytes]] = []
        self.ingest = PublishWindows(
            NEAR,
            self,  # type: ignore[arg-type]
            self.post,
            self.leaders.get,
            lambda group: [],
            window_bytes=2000,
            wait_ms=10_000,
            world="b1b1b1b1",
        )

    def post(self, node: str, frame: int, body: list[bytes | memoryview]) -> bool:
        raw = memoryview(b"".join(body))
        if frame == Frame.OPEN:
            self.sent.append((node, *decode_open(raw), 0))
        else:
            group, forward, _ = decode_forward(raw)
            assert group == HERE or forward.config_version == 0, "green counts its configurations by itself"
            for number in range(count_of(forward.block)):
                self.sent.append((node, group, forward.session, forward.first_number + number))
        return True

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self.refused.append((subject, header))

    def publish_many(self, account: str, messages: list[tuple[bytes, bytes]]) -> None: ...

    def take(self) -> list[tuple[str, str, SessionKey, int]]:
        sent, self.sent = self.sent, []
        return sent


@pytest.mark.covers("BG-4", "BG-10")
@pytest.mark.parametrize(
    "is_known", [True, False], ids=["green's leader is known", "green's leader comes later"]
)
def test_a_window_goes_on_in_green_under_its_far_name_with_its_numbers(is_known: bool) -> None:
    wire = Wire(**{HERE: "n1"})
    found, client = wire.ingest, Client(wire.ingest)
    found.set_map([assignment(HERE)], client.routes.clear)
    client.publish(b"1")
    found.flush(0)
    found.opened(HERE, NEAR, True, 0)
    client.publish(b"2")
    found.flush(0)
    found.verdicts(HERE, NEAR, [VerdictRun(1, 1, 1)], appended=False, now_ms=0)
    client.publish(b"3")
    found.flush(0)
    assert wire.take() == [("n1", HERE, NEAR, number) for number in (0, 1, 2, 3)]
    # Blue fences: nothing more is judged. Green's leader may be known before the map shows that it has opened the stream.
    if is_known:
        wire.leaders[THERE] = "n0%9e9e9e9e"
        found.leader_serves(THERE, 1)
    client.publish(b"4")
    found.flush(1)
    assert wire.take() == [("n1", HERE, NEAR, 4)], "nothing goes to green before blue's map says so"
    client.publish(b"5")
    found.set_map([far_assignment()], client.routes.clear)
    found.flush(2)
    if not is_known:
        assert wire.take() == []
        wire.leaders[THERE] = "n0%9e9e9e9e"
        found.leader_serves(THERE, 3)
    assert wire.take() == [("n0%9e9e9e9e", THERE, FAR, number) for number in (2, 3, 4, 5)]
    found.verdicts(HERE, NEAR, [VerdictRun(2, 4, 2)], appended=False, now_ms=4)
    assert found.unconfirmed(THERE) == 4, "blue's word comes too late to count"
    found.verdicts(THERE, FAR, [VerdictRun(2, 2, 2)], appended=False, now_ms=4)
    assert found.unconfirmed(THERE) == 2
    client.publish(b"6")
    found.flush(5)
    assert wire.take() == [("n0%9e9e9e9e", THERE, FAR, 6)]


@pytest.mark.covers("BG-12")
def test_who_publishes_to_a_stream_that_green_has_is_told_once_per_message() -> None:
    wire = Wire(**{HERE: "n1", THERE: "n2%9e9e9e9e"})
    found, client = wire.ingest, Client(wire.ingest)
    told: list[tuple[str, str, list[object]]] = []
    found.passed_on = lambda account, stream, publishers: told.append((account, stream, list(publishers)))

    def waiting() -> list[tuple[str, str, list[object]]]:
        return [(account, stream, list(who)) for account, stream, who in found.waiting_for_green()]

    found.set_map([assignment(HERE)], client.routes.clear)
    client.publish(b"1")
    found.flush(0)
    found.opened(HERE, NEAR, True, 0)
    assert waiting() == [], "blue has the stream"
    way = StreamMigration("m", 1, StreamStage.HANDING, "9e9e9e9e", HERE, THERE)
    found.set_map([replace(assignment(HERE), migration=way)], client.routes.clear)
    found.verdicts(HERE, NEAR, [VerdictRun(1, 1, 1)], appended=False, now_ms=0)
    assert waiting() == [], "blue has taken it"
    client.publish(b"2")
    found.flush(1)
    client.publish(b"3")
    assert waiting() == [(ACCOUNT, "orders", [client, client])]
    assert told == [], "the stream may go back to blue"
    found.set_map([far_assignment()], client.routes.clear)
    found.flush(2)
    assert told == [(ACCOUNT, "orders", [client])] * 2, "what was sent to blue's leader, and what was not"
    told.clear()
    client.publish(b"4")
    found.flush(3)
    assert told.pop() == (ACCOUNT, "orders", [client])
    assert (told, waiting()) == ([], [])


@pytest.mark.covers("BG-4")
def test_a_session_that_was_not_there_at_the_cut_is_opened_in_green() -> None:
    wire = Wire(**{HERE: "n1", THERE: "n2%9e9e9e9e"})
    found, client = wire.ingest, Client(wire.ingest)
    found.set_map([assignment(HERE)], client.routes.clear)
    client.publish(b"1")
    found.flush(0)
    assert wire.take() == [("n1", HERE, NEAR, 0)], "blue is fenced and opens none"
    found.set_map([far_assignment()], client.routes.clear)
    found.flush(1)
    assert wire.take() == [("n2%9e9e9e9e", THERE, FAR, 0)]
    found.opened(THERE, FAR, True, 2)
    assert wire.take() == [("n2%9e9e9e9e", THERE, FAR, 1)]
    # A session that blue had opened without a word to this broker: green does not know it, and it is opened again.
    found.again(THERE, FAR, 0, 3)
    assert wire.take() == [("n2%9e9e9e9e", THERE, FAR, 0)]


@pytest.mark.covers("BG-4")
def test_a_broker_that_starts_when_green_has_the_stream_opens_a_far_session() -> None:
    wire = Wire(**{THERE: "n2%9e9e9e9e"})
    client = Client(wire.ingest)
    wire.ingest.set_map([far_assignment()], client.routes.clear)
    client.publish(b"1")
    wire.ingest.flush(0)
    assert wire.take() == [("n2%9e9e9e9e", THERE, FAR, 0)]


@pytest.mark.covers("BG-4")
def test_a_stream_on_its_way_here_refuses_publishes_until_it_is_open() -> None:
    wire = Wire(**{THERE: "n1"})
    found, client = wire.ingest, Client(wire.ingest)
    coming = replace(assignment(THERE), following=Following("m", 1, HERE, "b1b1b1b1", ("n0%9e9e9e9e@a",)))
    found.set_map([coming], client.routes.clear)
    stand_in = found.capture(ACCOUNT, SUBJECT)
    assert isinstance(stand_in, ComingStream)
    assert stand_in.take(client, SUBJECT, b"_R", b"", b"x")
    assert wire.refused == [(b"_R", NO_RESPONDERS)]
    client.publish(b"plain")
    assert len(client.errors) == 1
    assert "message not stored" in client.errors[0]
    assert (client.held, client.uncaptured, found.windows) == ([], [], {})
    found.set_map([assignment(THERE)], client.routes.clear)
    client.publish(b"1")
    found.flush(0)
    assert wire.take() == [("n1", THERE, NEAR, 0)]


@pytest.mark.covers("SF-10")
def test_what_a_leader_says_to_the_session_of_a_lost_volume_is_not_for_the_new_one() -> None:
    found = ingest(leader="n1")
    client = Client(found)
    found.set_map([assignment("S.1")], client.routes.clear)
    client.publish(b"first")
    found.flush(0)
    window = found.windows["S.1"]
    # The counter of sessions is kept on the volume: with a new one it begins anew.
    lost, here = SessionKey("n0", "lost", 1), SessionKey("n0", "a", 1)
    found.opened("S.1", lost, True, 1)
    found.again("S.1", lost, 0, 1)
    found.verdicts("S.1", lost, [VerdictRun(1, 5, 40)], appended=False, now_ms=1)
    assert (window.phase, window.unconfirmed) == (SessionPhase.OPENING, 1)
    found.opened("S.1", here, True, 2)
    found.verdicts("S.1", here, [VerdictRun(1, 1, 1)], appended=False, now_ms=2)
    assert (window.phase, window.unconfirmed) == (SessionPhase.OPEN, 0)


# ---- subjects that go to another stream ---------------------------------------------------------------------------


def stream(name: str, *subjects: str, version: int = 1) -> Assignment:
    return Assignment(ACCOUNT, name, name, StreamConfig(name=name, subjects=subjects), 1, ("n0@a",), version)


class Connection:
    """A connection that holds what streams do not take, as the broker's do."""

    def __init__(self, ingest: PublishWindows) -> None:
        self.ingest = ingest
        self.held = HeldMessages()
        self.errors: list[str] = []

    def publish(self, subject: bytes, payload: bytes) -> None:
        self.route((subject, b"", b"", payload))

    def route(self, message: Message, *, offered_by: str | None = None) -> bool:
        window = self.ingest.capture(ACCOUNT, message[0])
        assert window is not None
        if offered_by == window.stream:
            return window.take(self, *message)
        if window.stream in self.held.streams or not window.take(self, *message):
            self.held.add(window.stream, message, 0)
        return True

    def pause(self, stream: str) -> None:
        self.held.open(stream, 0)

    def resume(self, stream: str) -> None:
        self.held.offer(
            stream,
            lambda name, message: self.route(message, offered_by=name),
            0,
            map_number=1,
            goes_elsewhere=lambda name, message: self.ingest.capture(ACCOUNT, message[0]).stream != name,  # type: ignore[union-attr]
        )

    def error(self, text: str) -> None:
        self.errors.append(text)


def payloads(window: Window) -> list[bytes]:
    """What a window has taken, in order."""
    window.seal(0)
    return [part for block in window._blocks for part in decode_block(block.data).parts()[2::3]]


def sent_on(found: PublishWindows, group: str, first: int, count: int) -> None:
    """The stream's leader says that it does not have the subjects of these numbers."""
    run = VerdictRun(first, count, 0, tuple(Exceptional(n, Verdict.REROUTE) for n in range(count)))
    found.verdicts(group, SessionKey("n0", "a", 1), [run], appended=False, now_ms=1)


BEFORE = [stream("A", "x", "y"), stream("B", "z")]
AFTER = [stream("A", "y", version=2), stream("B", "x", "z", version=2)]


def moved(count: int, window_bytes: int = 200) -> tuple[PublishWindows, Connection]:
    """A connection has published to x when that goes from A, which nobody leads, to B."""
    found = ingest(window_bytes=window_bytes)
    connection = Connection(found)
    found.set_map(BEFORE, lambda: None)
    for number in range(count):
        connection.publish(b"x", b"%d" % number)
    found.flush(0)
    found.set_map(AFTER, lambda: None)
    return found, connection


@pytest.mark.covers("SF-3")
def test_a_connection_s_messages_keep_their_order_when_their_subject_goes_to_another_stream() -> None:
    found, connection = moved(2, window_bytes=1000)
    other = Connection(found)
    connection.publish(b"x", b"2")
    other.publish(b"x", b"other")
    connection.publish(b"y", b"still A's")
    assert payloads(found.windows["B"]) == [b"other"]
    sent_on(found, "A", 1, 2)
    assert payloads(found.windows["B"]) == [b"other", b"0", b"1", b"2"]
    assert payloads(found.windows["A"]) == [b"still A's"]
    assert not connection.held.total_bytes


@pytest.mark.covers("SF-3", "SF-15")
def test_what_a_connection_holds_follows_its_subject_before_what_comes_later() -> None:
    """A window has room for four messages of 66 bytes."""
    found, connection = moved(5)
    assert connection.held.total_bytes
    connection.publish(b"x", b"5")
    connection.publish(b"z", b"B's own")
    other = Connection(found)
    for _ in range(4):
        other.publish(b"z", b"f")
    sent_on(found, "A", 1, 4)
    assert payloads(found.windows["B"]) == [b"f"] * 4 + [b"0", b"1", b"2", b"3"]
    found.verdicts("B", SessionKey("n0", "a", 1), [VerdictRun(1, 8, 1)], appended=False, now_ms=2)
    assert payloads(found.windows["B"]) == [b"4", b"5", b"B's own"]
    assert not connection.errors


@pytest.mark.covers("SF-3", "SF-14")
def test_what_a_leader_sends_on_waits_for_the_map_that_says_where() -> None:
    found = ingest()
    connection = Connection(found)
    found.set_map(BEFORE, lambda: None)
    connection.publish(b"x", b"0")
    connection.publish(b"x", b"1")
    found.flush(0)
    sent_on(found, "A", 1, 1)
    assert not payloads(found.windows["B"])
    found.set_map(AFTER, lambda: None)
    connection.publish(b"x", b"2")
    assert payloads(found.windows["B"]) == [b"0"]
    sent_on(found, "A", 2, 1)
    assert payloads(found.windows["B"]) == [b"0", b"1", b"2"]
    assert not connection.errors


@pytest.mark.covers("SF-15")
def test_what_waits_for_a_map_that_does_not_come_is_given_up() -> None:
    found = ingest()
    connection = Connection(found)
    found.set_map(BEFORE, lambda: None)
    connection.publish(b"x", b"0")
    found.flush(0)
    sent_on(found, "A", 1, 1)
    assert found.deadline_ms() == 10_001
    found.tick(10_001)
    assert len(connection.errors) == 1
    assert found.deadline_ms() is None


@pytest.mark.covers("SF-3", "SF-15")
def test_a_publisher_waits_no_longer_than_what_it_waits_for() -> None:
    found, connection = moved(1)
    connection.publish(b"x", b"later")
    assert not payloads(found.windows["B"])
    found.tick(10_001)
    assert payloads(found.windows["B"]) == [b"later"]
    assert len(connection.errors) == 1


@pytest.mark.covers("SF-29")
def test_a_broker_that_stood_still_waits_anew_for_the_map() -> None:
    found = ingest()
    connection = Connection(found)
    found.set_map(BEFORE, lambda: None)
    connection.publish(b"x", b"0")
    found.flush(0)
    sent_on(found, "A", 1, 1)
    found.stood_still(9_000)
    found.tick(18_999)
    assert not connection.errors
    found.tick(19_000)
    assert len(connection.errors) == 1
