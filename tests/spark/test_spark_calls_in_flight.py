"""Calls are on their way together, and are repeated in order from the first without a good answer on."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from supercluster.spark.calls_in_flight import IN_FLIGHT_MAX, CallsInFlight
from supercluster.spark.client import ConnectionFailedError
from supercluster.spark.jetstream import ApiRefusedError, JetStreamSession

pytestmark = pytest.mark.covers("SP-1")
REFUSED = {"error": {"code": 400, "err_code": 19043}}


class Broker:
    """Its session and connection. `bad` says what is answered to the first copy of a call, instead of success."""

    def __init__(self, bad: dict[int, object], refuses: tuple[int, ...] = ()) -> None:
        self.bad, self.refuses = bad, refuses
        self.sent: list[int] = []
        self.repeated: list[int] = []
        self.most = 0
        self.drops = self.forgets = 0
        self._open: dict[bytes, int] = {}

    # ---- a session ------------------------------------------------------------------------------------------------

    def broker(self) -> Broker:
        return self

    def drop(self) -> None:
        self.drops += 1

    def ask(self, subject: str, body: dict[str, Any], *, tail: bytes) -> dict[str, Any]:
        assert tail == b"\n%d" % body["block"]
        if body["block"] in self.refuses:
            raise ApiRefusedError(subject, REFUSED["error"])
        self.repeated.append(body["block"])
        return {}

    # ---- its connection -------------------------------------------------------------------------------------------

    def send(self, subject: str, payload: bytes) -> bytes:
        head, _, tail = payload.partition(b"\n")
        number = json.loads(head)["block"]
        assert tail == b"%d" % number
        if self.bad.get(number) == "unsent":
            raise ConnectionFailedError("gone")
        self.sent.append(number)
        reply = b"%d" % len(self.sent)
        self._open[reply] = number
        self.most = max(self.most, len(self._open))
        return reply

    def answer(self, reply: bytes, deadline: float) -> bytes:
        found = self.bad.get(self._open.pop(reply), {})
        if found == "lost":
            raise ConnectionFailedError("gone")
        return found if isinstance(found, bytes) else json.dumps(found).encode()

    def forget(self) -> None:
        self.forgets += 1
        self._open.clear()


class Channel:
    """The bulk port; `bad` as above."""

    def __init__(self, bad: dict[int, object]) -> None:
        self.bad = bad
        self.sent: list[int] = []
        self.most = self.closed = 0
        self._open: list[int] = []

    def send(self, payload: bytes) -> None:
        number = json.loads(payload.partition(b"\n")[0])["block"]
        if self.bad.get(number) == "unsent":
            raise ConnectionFailedError("gone")
        self.sent.append(number)
        self._open.append(number)
        self.most = max(self.most, len(self._open))

    def answer(self) -> bytes:
        found = self.bad.get(self._open.pop(0), {})
        if found == "lost":
            raise ConnectionFailedError("gone")
        return found if isinstance(found, bytes) else json.dumps(found).encode()

    def close(self) -> None:
        self.closed += 1


def staged(broker: Broker, count: int = 9, channel: Channel | None = None) -> None:
    calls = CallsInFlight(
        cast("JetStreamSession", broker), "SINK.STAGE.S", (lambda: channel) if channel else None
    )
    for number in range(1, count + 1):
        calls.put({"block": number}, b"\n%d" % number)
    calls.end()


def test_a_bounded_number_is_on_the_way_and_nothing_is_asked_twice() -> None:
    broker = Broker({})
    staged(broker)
    assert (broker.sent, broker.repeated, broker.most) == (list(range(1, 10)), [], IN_FLIGHT_MAX)


@pytest.mark.parametrize("answer", [REFUSED, "lost", b"{"])
def test_all_from_the_first_without_a_good_answer_are_repeated_in_order(answer: object) -> None:
    broker = Broker({3: answer})
    staged(broker)
    assert broker.sent == list(range(1, 10))
    assert broker.repeated == [3, 4, 5, 6]
    assert (broker.drops, broker.forgets) == (answer == "lost", 1)


def test_what_was_on_the_way_when_the_connection_failed_is_repeated() -> None:
    broker = Broker({3: "unsent"})
    staged(broker)
    assert broker.sent == [1, 2, 4, 5, 6, 7, 8, 9]
    assert broker.repeated == [1, 2, 3]
    assert broker.drops == 1


def test_the_last_ones_are_waited_for() -> None:
    broker = Broker({2: "lost"})
    staged(broker, 2)
    assert broker.repeated == [2]


def test_a_refusal_that_repeating_does_not_cure_is_raised() -> None:
    broker = Broker({2: REFUSED}, refuses=(2,))
    with pytest.raises(ApiRefusedError):
        staged(broker)
    assert broker.repeated == []


# ---- the bulk port ------------------------------------------------------------------------------------------------


def test_all_but_the_first_go_over_the_bulk_port_while_it_answers() -> None:
    broker, channel = Broker({}), Channel({})
    staged(broker, channel=channel)
    assert (channel.sent, channel.most) == (list(range(2, 10)), IN_FLIGHT_MAX)
    assert (broker.sent, broker.repeated) == ([1], [])


def test_for_a_single_call_no_port_is_asked() -> None:
    broker, asked = Broker({}), list[int]()
    calls = CallsInFlight(cast("JetStreamSession", broker), "SINK.STAGE.S", lambda: asked.append(1))
    calls.put({"block": 1}, b"\n1")
    calls.end()
    assert (broker.sent, asked) == ([1], [])


@pytest.mark.parametrize("answer", [REFUSED, "lost", b"{"])
def test_from_the_first_without_a_good_answer_on_all_go_over_nats(answer: object) -> None:
    broker, channel = Broker({}), Channel({3: answer})
    staged(broker, channel=channel)
    assert (channel.sent, channel.closed) == ([2, 3, 4, 5, 6], 1)
    assert broker.repeated == [3, 4, 5, 6]
    assert broker.sent == [1, 7, 8, 9]


def test_a_bulk_port_that_goes_away_while_a_call_is_made_is_given_up() -> None:
    broker, channel = Broker({}), Channel({5: "unsent"})
    staged(broker, channel=channel)
    assert (channel.sent, channel.closed) == ([2, 3, 4], 1)
    assert broker.repeated == [2, 3, 4, 5]
    assert broker.sent == [1, 6, 7, 8, 9]


def test_what_the_stream_refuses_over_the_bulk_port_is_refused_over_nats() -> None:
    broker, channel = Broker({}, refuses=(2,)), Channel({2: REFUSED})
    with pytest.raises(ApiRefusedError):
        staged(broker, channel=channel)


def test_without_a_port_all_go_over_nats() -> None:
    broker = Broker({})
    staged(broker)
    assert broker.sent == list(range(1, 10))
