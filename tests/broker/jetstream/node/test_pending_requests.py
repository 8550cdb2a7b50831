"""API requests on their way to leaders that move, fall silent, or are not there; and leaders that are asked twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from supercluster.broker.jetstream.frontend import fallback_answers
from supercluster.broker.jetstream.frontend.answer_cache import (
    ANSWER_BYTES_MAX,
    ANSWERS_MAX,
    AnswerCache,
    Known,
)
from supercluster.broker.jetstream.links.frames import Frame, Request, ResponseStatus, decode_request
from supercluster.broker.jetstream.node import pending_requests
from supercluster.broker.jetstream.node.pending_requests import (
    ASK_LEADER_MS,
    REQUEST_RETRY_MS,
    REQUEST_WAIT_MS,
    RESENT_MAX,
    PendingRequests,
    continue_payload,
)
from supercluster.broker.ports import Channel, ClientInfo

INFO = ClientInfo("$G", "u", False)
PULL = b"$JS.API.CONSUMER.MSG.NEXT.S.c"
INFO_CALL = b"$JS.API.STREAM.INFO.S"
PURGE = b"$JS.API.STREAM.PURGE.S"
DELETE = b"$JS.API.STREAM.DELETE.S"


@dataclass
class World:
    """Leaders, and what was sent and published."""

    leaders: dict[str, str] = field(default_factory=dict)
    sent: list[tuple[str, int, list[Any]]] = field(default_factory=list)
    published: list[tuple[bytes, bytes, bytes]] = field(default_factory=list)
    delivered: list[tuple[bytes, bytes]] = field(default_factory=list)
    before: list[tuple[str, int]] = field(default_factory=list)
    """Which group's leader was to get what came before, and how many frames had been sent by then."""

    def post(self, node: str, frame: int, body: list[bytes | memoryview]) -> bool:
        self.sent.append((node, frame, body))
        return True

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self.published.append((subject, header, payload))

    def publish_many(self, account: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        raise AssertionError

    def deliver(self, account: str, inbox: bytes, items: Any) -> None:
        self.delivered += [(inbox, header) for _, _, header, _ in items]

    def has_interest(self, account: str, subject: bytes, queue: bytes = b"") -> bool:
        return True

    def pending_bytes(self, account: str, inbox: bytes) -> int:
        return 0

    def send(self, node: str, frame_type: int, body: Any, channel: Channel) -> bool:
        raise AssertionError

    def requests(self) -> PendingRequests:
        return PendingRequests(
            self,
            self.post,
            self.leaders.get,
            lambda group: ["a", "b"],
            lambda request: b'{"error": {"err_code": 10008, "group": "%s"}}' % request.group.encode(),
            fallback_answers.done_before,
            origin="vol",
            before=lambda group, now_ms: self.before.append((group, len(self.sent))),
        )

    def asked(self) -> list[tuple[str, Request]]:
        found = [(node, body) for node, frame, body in self.sent if frame == Frame.REQUEST]
        self.sent.clear()
        return [
            (node, decode_request(memoryview(b"".join(bytes(part) for part in body)))) for node, body in found
        ]


def ask(requests: PendingRequests, subject: bytes = b"$JS.API.STREAM.INFO.S", now_ms: int = 0) -> None:
    requests.send("g", INFO, subject, b"reply", b"", b"", now_ms)


@pytest.mark.covers("SF-2")
def test_acknowledgements_go_before_a_request_and_pulls_do_not_wait_for_them() -> None:
    world = World(leaders={"g": "a"})
    requests = world.requests()
    ask(requests, PULL)
    assert (len(world.sent), world.before) == (1, [])
    ask(requests, b"$JS.API.CONSUMER.INFO.S.c")
    assert (len(world.sent), world.before) == (2, [("g", 1)])


@pytest.mark.covers("MV-10")
def test_pulls_that_no_leader_has_end_when_the_broker_stops() -> None:
    world = World(leaders={"g": "a"})
    requests = world.requests()
    requests.send("g", INFO, PULL, b"taken", b"", b"5", 0)
    requests.send("other", INFO, PULL, b"waits", b"", b"5", 0)
    requests.send("other", INFO, b"$JS.API.CONSUMER.INFO.S.c", b"asks", b"", b"", 0)
    requests.end_pulls()
    ((inbox, header),) = world.delivered
    assert (inbox, header) == (b"waits", b"NATS/1.0 409 Server Shutdown\r\n\r\n")
    assert len(requests) == 2, "a leader has the one, and the other is no pull"


def test_a_request_waits_for_a_leader_and_follows_it() -> None:
    world = World()
    requests = world.requests()
    ask(requests)
    assert [frame for _, frame, _ in world.sent] == [Frame.WHO_LEADS, Frame.WHO_LEADS]
    world.sent.clear()
    world.leaders["g"] = "a"
    requests.leader_serves("g", 50)
    ((node, first),) = world.asked()
    assert node == "a"
    requests.response(first.number, ResponseStatus.NOT_LEADER, b"", 60)
    requests.tick(60 + ASK_LEADER_MS - 1)
    assert world.asked() == []
    world.leaders["g"] = "b"
    requests.tick(60 + ASK_LEADER_MS)
    assert [node for node, _ in world.asked()] == ["b"]
    requests.response(first.number, ResponseStatus.ANSWER, b"{}", 400)
    requests.response(first.number, ResponseStatus.ANSWER, b"{}", 400)
    assert world.published == [(b"reply", b"", b"{}")]
    assert (len(requests), requests.deadline_ms()) == (0, None)


def test_an_unanswered_request_is_repeated_and_in_the_end_refused() -> None:
    world = World({"g": "a"})
    requests = world.requests()
    ask(requests)
    for turn in range(1, 5):
        assert requests.deadline_ms() == turn * REQUEST_RETRY_MS
        requests.tick(turn * REQUEST_RETRY_MS)
    assert len(world.asked()) == 5
    requests.tick(REQUEST_WAIT_MS)
    ((_, header, payload),) = world.published
    assert header == b""
    assert payload == b'{"error": {"err_code": 10008, "group": "g"}}'


def test_a_refused_pull_is_a_status_and_no_message() -> None:
    world = World({"g": "a"})
    requests = world.requests()
    ask(requests, PULL)
    ((_, request),) = world.asked()
    requests.response(request.number, ResponseStatus.ANSWER, b'{"error":{}}', 0)
    ask(requests, PULL)
    requests.tick(REQUEST_WAIT_MS)
    told = b"NATS/1.0 503\r\nNats-Subject: $JS.API.CONSUMER.MSG.NEXT.S.c\r\n\r\n"
    assert world.published == [(b"reply", told, b"")] * 2


def test_the_meta_leader_sends_on_to_the_stream_that_it_made() -> None:
    world = World({"g": "a", "stream": "b"})
    requests = world.requests()
    ask(requests, b"$JS.API.STREAM.CREATE.S")
    ((_, request),) = world.asked()
    requests.response(request.number, ResponseStatus.CONTINUE, continue_payload("stream", 17), 5)
    ((node, onward),) = world.asked()
    assert (node, onward.group, onward.header, onward.subject) == ("b", "stream", b"17", request.subject)
    assert onward.number != request.number
    requests.response(onward.number, ResponseStatus.TAKEN, b"", 6)
    assert (world.published, len(requests)) == ([], 0)


def test_an_update_that_the_map_has_goes_to_the_next_leader_of_the_stream() -> None:
    world = World({"g": "a", "stream": "c"})
    requests = world.requests()
    ask(requests, UPDATE)
    ((_, request),) = world.asked()
    requests.response(request.number, ResponseStatus.CONTINUE, continue_payload("stream", 17), 5)
    assert [node for node, _ in world.asked()] == ["c"]
    requests.link_down("c")
    world.leaders["stream"] = "b"
    requests.leader_serves("stream", 10)
    assert [(node, onward.header) for node, onward in world.asked()] == [("b", b"17")]
    assert world.published == []


NO_MESSAGE = b'{"type":"x","error":{"code":404,"err_code":10043,"description":"no message found"}}'
MESSAGE_DELETE, UPDATE = b"$JS.API.STREAM.MSG.DELETE.S", b"$JS.API.STREAM.UPDATE.S"


@pytest.mark.parametrize("how", ["answered", "not the leader", "fell"])
def test_a_message_that_a_fallen_leader_may_have_deleted_is_deleted(how: str) -> None:
    world = World({"g": "a"})
    requests = world.requests()
    ask(requests, MESSAGE_DELETE)
    ((_, request),) = world.asked()
    if how == "not the leader":
        requests.response(request.number, ResponseStatus.NOT_LEADER, b"", 0)
        requests.tick(ASK_LEADER_MS)
    elif how == "fell":
        requests.response(request.number, ResponseStatus.UNDECIDED, b"", 0)
        requests.tick(ASK_LEADER_MS)
    requests.response(request.number, ResponseStatus.ANSWER, NO_MESSAGE, 600)
    ((_, _, payload),) = world.published
    assert (b'"success"' in payload) == (how == "fell")


@pytest.mark.parametrize("how", ["its process is lost", "it is silent", "it is deposed"])
@pytest.mark.parametrize(
    ("subject", "again"), [(DELETE, False), (PURGE, False), (UPDATE, False), (PULL, True), (INFO_CALL, True)]
)
def test_what_a_lost_leader_may_have_removed_is_not_removed_again(
    how: str, subject: bytes, again: bool
) -> None:
    """Somebody may have stored messages since, or made a stream of the same name: a client that waits has no claim on those."""
    world = World({"g": "c"})
    requests = world.requests()
    ask(requests, subject)
    ((_, request),) = world.asked()
    if how == "its process is lost":
        requests.link_down("other")
        assert len(requests) == 1
        requests.link_down("c")
    elif how == "it is deposed":
        requests.response(request.number, ResponseStatus.UNDECIDED, b"", 400, "c")
    world.leaders["g"] = "b"
    requests.leader_serves("g", 500)
    requests.tick(REQUEST_RETRY_MS)
    assert [node for node, _ in world.asked()] == ["b"] * again
    assert [b"10008" in payload for _, _, payload in world.published] == [True] * (not again)
    assert len(requests) == again


def test_what_the_same_leader_is_asked_again_is_sent_again() -> None:
    world = World({"g": "a"})
    requests = world.requests()
    ask(requests, PURGE)
    requests.tick(REQUEST_RETRY_MS)
    assert [node for node, _ in world.asked()] == ["a", "a"]


def test_who_asks_about_a_stream_that_goes_hears_it_and_one_that_begins_anew_is_asked_again() -> None:
    world = World()
    requests = world.requests()
    ask(requests)
    requests.groups_gone(["g", "h"], lambda request: "new", fallback_answers.not_there, 5)
    assert world.published == []
    world.leaders["new"] = "b"
    requests.leader_serves("new", 10)
    assert [(node, request.group) for node, request in world.asked()] == [("b", "new")]
    requests.groups_gone(["new"], lambda request: None, fallback_answers.not_there, 5)
    ((_, _, payload),) = world.published
    assert b"10059" in payload


FAR = "b%12345678"


@pytest.mark.covers("BG-5")
def test_what_waits_for_a_stream_that_another_super_cluster_has_now_goes_there_at_once() -> None:
    world = World()
    requests = world.requests()
    ask(requests, PULL)
    ask(requests)
    world.sent.clear()
    world.leaders["g~1"] = FAR
    requests.groups_gone(["g"], lambda request: "g~1", fallback_answers.not_there, 5)
    assert requests.deadline_ms() == 5
    requests.tick(5)
    assert [(node, found.group, found.subject) for node, found in world.asked()] == [
        (FAR, "g~1", PULL),
        (FAR, "g~1", b"$JS.API.STREAM.INFO.S"),
    ]


@pytest.mark.covers("BG-5", "MV-10")
def test_a_pull_that_the_old_leader_has_goes_to_another_super_cluster_once() -> None:
    world = World({"g": "a"})
    requests = world.requests()
    ask(requests, PULL)
    ask(requests, PULL)
    ask(requests, PULL)
    world.sent.clear()
    world.leaders["g~1"] = FAR
    requests.groups_gone(["g"], lambda request: "g~1", fallback_answers.not_there, 5)
    requests.leader_serves("g~1", 5)
    requests.tick(5)
    assert world.asked() == [], "the old leader says what became of them"
    requests.response(1, ResponseStatus.TAKEN, b"", 6, "a")
    requests.response(2, ResponseStatus.UNDECIDED, b"", 6, "a")
    assert [(node, found.number) for node, found in world.asked()] == [(FAR, 2)]
    requests.tick(REQUEST_RETRY_MS)
    assert [(node, found.number) for node, found in world.asked()] == [(FAR, 3)], (
        "it said nothing of this one"
    )


@pytest.mark.covers("BG-5")
def test_a_deletion_that_blue_did_not_begin_is_greens() -> None:
    successor = "g~1"
    world = World({"g": "a"})
    requests = world.requests()
    ask(requests, b"$JS.API.CONSUMER.DELETE.S.c")
    world.sent.clear()
    world.leaders[successor] = FAR
    requests.groups_gone(["g"], lambda request: successor, fallback_answers.not_there, 5)
    requests.tick(5)
    assert world.asked() == [], "blue's leader owes a word of it"
    requests.response(1, ResponseStatus.NOT_LEADER, b"", 6, "a")
    ((_, found),) = world.asked()
    requests.response(found.number, ResponseStatus.ANSWER, b'{"error":{"code":404,"err_code":10014}}', 6, FAR)
    ((_, _, payload),) = world.published
    assert b"10014" in payload


@pytest.mark.covers("BG-5")
@pytest.mark.parametrize("successor", ["g~1", "new"])
@pytest.mark.parametrize("is_silent", [True, False])
def test_a_deletion_that_a_leader_may_have_done_goes_to_no_other_group(
    successor: str, *, is_silent: bool
) -> None:
    world = World({"g": "a"})
    requests = world.requests()
    ask(requests, b"$JS.API.CONSUMER.DELETE.S.c")
    world.sent.clear()
    world.leaders[successor] = FAR
    requests.groups_gone(["g"], lambda request: successor, fallback_answers.not_there, 5)
    if not is_silent:
        requests.response(1, ResponseStatus.UNDECIDED, b"", 6, "a")
    requests.tick(REQUEST_RETRY_MS)
    assert world.asked() == []
    ((_, _, payload),) = world.published
    assert b"10008" in payload


@pytest.mark.covers("BG-5", "SF-23")
def test_nobody_is_an_operator_in_another_super_cluster() -> None:
    operator = ClientInfo("A", "op", is_operator=True)
    for leader, is_operator in (("a", True), (FAR, False)):
        world = World({"g": leader})
        world.requests().send("g", operator, b"$JS.API.STREAM.INFO.S", b"r", b"", b"", 0)
        ((_, request),) = world.asked()
        assert request.info == ClientInfo("A", "op", is_operator=is_operator)


@pytest.mark.covers("MV-10")
@pytest.mark.parametrize("subject", [PULL, PURGE])
def test_what_a_broker_has_is_not_sent_to_the_next_leader_before_that_broker_spoke(subject: bytes) -> None:
    """It took the pull and gives the rest of it back, or has purged and says so: twice sent, it would be carried out twice."""
    world = World({"g": "a"})
    requests = world.requests()
    ask(requests, subject)
    assert [node for node, _ in world.asked()] == ["a"]
    world.leaders["g"] = "b"
    requests.leader_serves("g", 5)
    assert world.asked() == []
    requests.response(1, ResponseStatus.TAKEN if subject == PULL else ResponseStatus.ANSWER, b"", 6, "a")
    requests.tick(REQUEST_RETRY_MS)
    assert world.asked() == []


@pytest.mark.covers("SF-29")
def test_a_leader_that_begins_to_serve_gets_what_waits_a_part_a_turn_and_in_order() -> None:
    world = World()
    requests = world.requests()
    for number in range(2 * RESENT_MAX):
        requests.send("g", INFO, PULL, b"%d" % number, b"", b"", 0)
    world.asked()
    world.leaders["g"] = "a"
    requests.leader_serves("g", 5)
    asked = [found.reply for _, found in world.asked()]
    assert len(asked) == RESENT_MAX
    requests.send("g", INFO, PULL, b"newer", b"", b"", 5)
    assert world.asked() == []
    while requests.deadline_ms() == 0:
        requests.tick(6)
        found = world.asked()
        assert len(found) <= RESENT_MAX
        asked += [request.reply for _, request in found]
    assert asked == [*(b"%d" % number for number in range(2 * RESENT_MAX)), b"newer"]


@pytest.mark.parametrize("how", ["it does not lead", "it is gone", "it is silent"])
def test_a_pull_goes_to_the_next_leader_when_the_broker_that_has_it_will_not_serve_it(how: str) -> None:
    world = World({"g": "c" if how == "it is gone" else "a"})
    requests = world.requests()
    ask(requests, PULL)
    world.asked()
    world.leaders["g"] = "b"
    requests.leader_serves("g", 5)
    if how == "it does not lead":
        assert world.asked() == []
        requests.response(1, ResponseStatus.NOT_LEADER, b"", 6, "a")
    elif how == "it is silent":
        assert world.asked() == []
        requests.tick(REQUEST_RETRY_MS)
    assert [node for node, _ in world.asked()] == ["b"]


def test_requests_of_the_broker_itself_get_the_answer_or_nothing() -> None:
    world = World({"g": "a"})
    requests = world.requests()
    heard: list[bytes | None] = []
    for _ in range(2):
        requests.send("g", INFO, b"x", b"", b"", b"", 0, on_answer=heard.append, wait_ms=100)
    requests.response(world.asked()[0][1].number, ResponseStatus.ANSWER, b"yes", 0)
    requests.tick(100)
    assert heard == [b"yes", None]
    assert world.published == []


def test_a_repeated_request_gets_the_same_answer_and_no_second_effect() -> None:
    book = AnswerCache()
    assert book.begin(("a", "vol", 1)) is Known.NEW
    assert book.begin(("a", "vol", 1)) is Known.UNDER_WAY
    assert book.begin(("b", "vol", 1)) is Known.NEW
    book.answered(("a", "vol", 1), ResponseStatus.ANSWER, b"done")
    assert book.begin(("a", "vol", 1)) == (ResponseStatus.ANSWER, b"done")
    book.dropped(("b", "vol", 1))
    assert book.begin(("b", "vol", 1)) is Known.NEW
    book.forget_node("b")
    assert book.begin(("b", "vol", 1)) is Known.NEW
    book.answered(("b", "vol", 1), ResponseStatus.ANSWER, b"x" * (ANSWER_BYTES_MAX + 1))
    assert book.begin(("b", "vol", 1)) is Known.NEW
    assert book.begin(("a", "a new volume", 1)) is Known.NEW, "whose numbers begin anew"
    for number in range(ANSWERS_MAX + 1):
        book.answered(("c", "vol", number), ResponseStatus.TAKEN, b"")
    assert book.begin(("a", "vol", 1)) is Known.NEW


@pytest.mark.covers("CL-7")
def test_who_waits_for_an_answer_is_known_and_who_waits_for_messages_is_not_among_them() -> None:
    world = World({"g": "a"})
    requests = world.requests()
    asks, pulls, internal = (ClientInfo("$G", "u", False) for _ in range(3))
    requests.send("g", asks, b"$JS.API.STREAM.INFO.S", b"r", b"", b"", 0)
    requests.send("g", pulls, PULL, b"r", b"", b"", 0)
    requests.send("g", internal, b"$SC.FACTS", b"", b"", b"", 0, on_answer=lambda answer: None)
    assert requests.asking() == {id(asks)}
    ((_, first), *_) = world.asked()
    requests.response(first.number, ResponseStatus.ANSWER, b"{}", 1)
    assert requests.asking() == set()


def test_payloads_that_wait_are_bounded_and_answers_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_requests, "PENDING_BYTES_MAX", 10)
    world = World(leaders={"g": "a"})
    requests = world.requests()

    def stage() -> int:
        requests.send("g", INFO, b"$JS.API.SINK.STAGE.S", b"reply", b"", b"rows..", 0)
        return len(requests)

    assert stage() == 1
    assert stage() == 1, "the second one is refused"
    ((_, request),) = world.asked()
    requests.response(request.number, ResponseStatus.CONTINUE, continue_payload("g", 1), 0)
    ((_, request),) = world.asked()
    requests.response(request.number, ResponseStatus.ANSWER, b"{}", 0)
    assert stage() == 1
    requests.tick(pending_requests.REQUEST_WAIT_MS)
    assert stage() == 1
