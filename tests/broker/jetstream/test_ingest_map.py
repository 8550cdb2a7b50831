"""What happens to messages that wait while the map of streams changes."""

from __future__ import annotations

import pytest

from supercluster.broker.jetstream.config import StreamConfig
from supercluster.broker.jetstream.ingest import HeldCapture, Ingest
from supercluster.broker.jetstream.meta import Assignment
from supercluster.broker.jetstream.sections import SessionKey, VerdictRun
from supercluster.broker.jetstream.window import SessionPhase, Window

ACCOUNT, SUBJECT = "$G", b"orders.1"


def assignment(group: str) -> Assignment:
    config = StreamConfig(name="orders", subjects=("orders.>",))
    return Assignment(ACCOUNT, "orders", group, config, 1, ("n0@a",), 1)


class Client:
    """A connection: keeps routes until it is told to forget them, and what a full stream did not take."""

    def __init__(self, ingest: Ingest) -> None:
        self.ingest = ingest
        self.routes: dict[bytes, Window | HeldCapture | None] = {}
        self.held: list[bytes] = []
        self.uncaptured: list[bytes] = []

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
        pass


class Nobody:
    """A network without clients."""

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        pass


def ingest(leader: str | None = None) -> Ingest:
    return Ingest(
        SessionKey("n0", "a", 1),
        Nobody(),  # type: ignore[arg-type]  # Only refusals are published here.
        lambda node, frame, body: True,
        lambda group: leader,
        list,
        window_bytes=200,
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
