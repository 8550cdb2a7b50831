"""What one client can cause takes room of a turn, or has a bound: counted in work, not in time (SF-36)."""

from __future__ import annotations

import itertools
import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.broker.jetstream.consumer.consumer_story import MS, Source, Story
from tests.broker.jetstream.publish.stream_story import StreamStory, config, message

from supercluster.broker.jetstream.config.consumer import FILTERS_BYTES_MAX
from supercluster.broker.jetstream.config.consumer_checks import check_workqueue_filters, read_consumer
from supercluster.broker.jetstream.encoding.sections import Exceptional, Verdict
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.frontend.stream_list import PAGE_BYTES_MAX, StreamList
from supercluster.broker.jetstream.publish import refusals
from supercluster.broker.jetstream.publish.message_admission import MESSAGE_ID_TOO_LARGE
from supercluster.broker.jetstream.publish.republish import Republisher
from supercluster.broker.jetstream.state import lookup
from supercluster.broker.jetstream.subjects.filters import compile_filters
from supercluster.broker.jetstream.subjects.subject_set import SubjectSet
from supercluster.broker.jetstream.turn.slices import UNITS_PER_TURN, Job, Slices
from supercluster.broker.net.routing.router import Router
from supercluster.broker.net.routing.turn import API_CALL_BYTES, ROOM_BYTES, VISIT_BYTES
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.subjects import SUBJECT_TOKENS_MAX

pytestmark = pytest.mark.covers("SF-36")
PUBLISHES = 400
CLIENT = ClientInfo("A", "u", False)


class Room:
    """A turn's room, without a loop."""

    def __init__(self) -> None:
        self.room_bytes = ROOM_BYTES
        self.dirty: list[Any] = []

    def want(self) -> None: ...


class Publisher:
    """A client in the account `A`."""

    def __init__(self, router: Router) -> None:
        self.account = router.account("A")
        self.held = SimpleNamespace(streams={})
        self.info = None
        self.pedantic = self.no_responders = False
        self.errors: list[str] = []

    def error(self, text: str) -> None:
        self.errors.append(text)


@pytest.fixture
def router() -> Router:
    clock: Any = SimpleNamespace(monotonic_ms=lambda: 0)
    return Router(Room(), random.Random(1), clock)  # type: ignore[arg-type]


def published(subject: str) -> tuple[bytes, bytes, bytes, bytes]:
    return subject.encode(), b"", b"", b""


# ---- matching -----------------------------------------------------------------------------------------------------


def test_a_turn_has_room_for_so_many_places_of_the_tree_of_subscriptions(router: Router) -> None:
    sublist = router.account("A").sublist
    for tokens in itertools.product("a*", repeat=11):
        sublist.insert(".".join(tokens).encode(), b"", None)  # type: ignore[arg-type]
    publisher: Any = Publisher(router)
    left = [published("a." * 11 + f"x{at}") for at in range(PUBLISHES)]
    visits_of_one = 2**12 - 1
    before = len(left)
    left = router.publishes(publisher, left)
    routed = before - len(left)
    assert left, "all of them were matched in one turn"
    assert routed * visits_of_one * VISIT_BYTES <= ROOM_BYTES + visits_of_one * VISIT_BYTES
    turns = 1
    while left:
        router.turn.room_bytes = ROOM_BYTES
        left = router.publishes(publisher, left)
        turns += 1
    assert turns == pytest.approx(PUBLISHES / routed, abs=1.5)


def test_what_many_subscribe_to_the_end_of_is_found_without_a_copy_for_each_token(router: Router) -> None:
    sublist = router.account("A").sublist
    for at in range(SUBJECT_TOKENS_MAX):
        sublist.insert(b"a." * at + b">", b"", None)  # type: ignore[arg-type]
    found = sublist.lookup(b"a." * (SUBJECT_TOKENS_MAX - 1) + b"a")
    assert len(found.plain) == SUBJECT_TOKENS_MAX
    assert sublist.take_visited() <= 2 * SUBJECT_TOKENS_MAX + 1


def test_calls_of_the_api_take_room_of_a_turn(router: Router) -> None:
    calls: list[bytes] = []
    core: Any = SimpleNamespace(on_api=lambda info, subject, *rest: calls.append(subject))
    router._core = core
    left = [published("$JS.API.STREAM.INFO.S")] * 5_000
    left = router.publishes(Publisher(router), left)  # type: ignore[arg-type]
    assert left
    assert len(calls) * API_CALL_BYTES <= ROOM_BYTES + API_CALL_BYTES


@pytest.mark.parametrize("count", [SUBJECT_TOKENS_MAX, SUBJECT_TOKENS_MAX + 1])
def test_a_subject_has_so_many_tokens_and_no_more(router: Router, count: int) -> None:
    publisher: Any = Publisher(router)
    router.account("A").sublist.insert(b">", b"", None)  # type: ignore[arg-type]
    match = router.find(publisher.account, b".".join([b"a"] * count))
    assert match.anyone == (count <= SUBJECT_TOKENS_MAX)
    router.publishes(publisher, [published(".".join("b" * (SUBJECT_TOKENS_MAX + 1)))])
    assert publisher.errors == ["Invalid Publish Subject: a subject has 257 tokens, at most 256 are allowed"]


# ---- filters ------------------------------------------------------------------------------------------------------


def test_filters_have_so_many_bytes_and_no_more() -> None:
    longs = [f"s.{'a.' * 440}x{at}" for at in range(1_000)]
    with pytest.raises(ApiError, match=rf"filter subjects have \d+ bytes, at most {FILTERS_BYTES_MAX} are"):
        read_consumer({"durable_name": "c", "filter_subjects": longs})
    read_consumer({"durable_name": "c", "filter_subjects": [f"s.{at}.*" for at in range(1_000)]})


def crossing(count: int) -> tuple[list[str], list[str]]:
    """Filters of which none overlaps with another, though a tree of tokens cannot tell before the last token."""
    middle = "a." * 20
    return [f"s.x{at}.{middle}y" for at in range(count)], [f"s.*.{middle}z{at}" for at in range(count)]


def test_each_filter_is_held_against_all_others_in_one_step_a_token() -> None:
    literal, wild = crossing(300)
    found = SubjectSet(literal)
    assert not any(map(found.overlapping, wild))
    assert found.steps == sum(item.count(".") + 1 for item in wild)
    every = SubjectSet(literal + wild)
    assert not any(map(every.covering, range(600)))
    assert every.steps <= sum(item.count(".") + 1 for item in literal + wild)


def test_the_filters_of_a_work_queue_are_held_against_each_other_so(monkeypatch: pytest.MonkeyPatch) -> None:
    literal, wild = crossing(300)
    one, other = (
        read_consumer({"durable_name": name, "ack_policy": "explicit", "filter_subjects": filters})
        for name, filters in (("one", literal), ("other", wild))
    )
    made: list[SubjectSet] = []

    def noted(subjects: tuple[str, ...]) -> SubjectSet:
        made.append(SubjectSet(subjects))
        return made[-1]

    monkeypatch.setattr("supercluster.broker.jetstream.config.consumer_checks.SubjectSet", noted)
    check_workqueue_filters(one, {"other": other})
    assert made[0].steps <= sum(item.count(".") + 1 for item in wild)


def test_long_filters_are_found_by_a_tree_as_short_ones_by_an_expression() -> None:
    rng = random.Random(3)
    filters = [".".join(rng.choice(("a", "b", "c", "*")) for _ in range(8)) for _ in range(300)] + ["b.>"]
    long, short = compile_filters(filters), [compile_filters((one,)) for one in filters]
    assert long is not None
    for _ in range(2_000):
        subject = ".".join(rng.choice("abc") for _ in range(rng.choice((1, 7, 8)))).encode()
        assert long(subject) == any(one is not None and one(subject) for one in short)


# ---- redeliveries -------------------------------------------------------------------------------------------------


def test_a_pump_delivers_so_many_again_and_none_sooner_than_the_floor() -> None:
    source = Source()
    for _ in range(1_000):
        source.store("s.a")
    story = Story(source, ack_policy="explicit", ack_wait=1, max_ack_pending=-1)
    assert len(story.ask(batch=5_000, expires=10**12)) == 1_000
    assert story.at(9 * MS).pump() == [], "an ack_wait of a nanosecond is 10 ms"
    again = story.at(20 * MS).pump()
    assert len(again) == 256
    assert story.leader.has_more
    messages, _ = story.leader.handed_out
    assert messages >= 256 * 32


# ---- streams and their messages -----------------------------------------------------------------------------------


def test_a_stream_has_so_many_sources_and_no_more() -> None:
    with pytest.raises(ApiError, match="sources has 4097 entries, at most 4096 are allowed"):
        config(subjects=[], sources=[{"name": f"o{at}"} for at in range(4_097)])
    config(subjects=[], sources=[{"name": f"o{at}"} for at in range(4_096)])


def test_a_stream_has_so_many_subjects_and_no_more() -> None:
    with pytest.raises(ApiError, match="subjects has 4097 entries, at most 4096 are allowed"):
        config(subjects=[f"s.{at}" for at in range(4_097)])
    with pytest.raises(ApiError, match=r"subjects have \d+ bytes, at most 262144 are allowed"):
        config(subjects=[f"s.{at}.{'a.' * 100}b" for at in range(2_000)])
    config(subjects=[f"s.{at}.{'a.' * 25}b" for at in range(4_096)])


def test_a_request_for_the_last_messages_of_too_many_subjects_takes_room_of_a_turn() -> None:
    story = StreamStory()
    for at in range(12):
        story.store(message(f"s.{at}".encode()))
    jobs, refused = Slices(), list[int]()

    def ask(number: int) -> Job:
        try:
            yield from lookup.lasts(story.state, ["s.>"], story.state.last_seq, 10)
        except lookup.TooMuchError:
            refused.append(number)

    for number in range(100):
        jobs.begin(None, ask(number))
    jobs.go_on()
    assert len(refused) * lookup.SLICE_UNITS < 2 * UNITS_PER_TURN
    while jobs:
        jobs.go_on()
    assert refused == list(range(100))


def test_a_page_of_the_list_of_streams_has_so_many_bytes() -> None:
    asked: list[bytes] = []
    large = config(metadata={"k": "v" * 100_000})
    assignment = SimpleNamespace(group="g", config=large)
    requests: Any = SimpleNamespace(send=lambda group, info, subject, *rest, **more: asked.append(subject))
    map_view: Any = SimpleNamespace(stream_of=lambda account, name: assignment)
    env: Any = SimpleNamespace(clock=SimpleNamespace(monotonic_ms=lambda: 0))
    call: Any = SimpleNamespace(offset=3, details=False)
    names = [f"s{at}" for at in range(500)]
    StreamList(env, map_view, requests, CLIENT, call, names, lambda answer: None).start()
    assert len(asked) == PAGE_BYTES_MAX // large.size_bytes
    assert asked[0] == b"$JS.API.STREAM.INFO.s3"


def test_a_message_id_has_so_many_bytes_and_no_more() -> None:
    story = StreamStory()
    assert story.publish(message(Nats_Msg_Id="i" * 1_024)) == [(1,)]
    assert story.publish(message(Nats_Msg_Id="i" * 1_025)) == [(Verdict.REFUSED, MESSAGE_ID_TOO_LARGE, 1_025)]
    refused = refusals.of_publish(Exceptional(0, Verdict.REFUSED, MESSAGE_ID_TOO_LARGE, 1_025))
    assert refused.description == "Nats-Msg-Id has 1025 bytes, at most 1024 are allowed"


def test_a_pull_request_has_no_shorter_heartbeat_than_a_push_consumer() -> None:
    source = Source()
    story = Story(source, ack_policy="explicit")
    refused = "in<400 Bad Request - idle_heartbeat is 1ns, it has to be at least 100ms"
    assert story.ask(batch=1, expires=10**10, idle_heartbeat=1) == [refused]
    assert story.ask(batch=1, expires=10**9, idle_heartbeat=100 * MS) == []


def test_what_is_handed_to_the_next_leader_is_a_request_that_it_takes() -> None:
    story = Story(Source(), ack_policy="explicit")
    story.ask(batch=1, expires=1_000 * MS, idle_heartbeat=400 * MS)
    rest: list[bytes] = []
    (request,) = story.leader._line
    request.give_back = rest.append
    story.leader.give_back(900 * MS)
    assert json.loads(rest[0])["idle_heartbeat"] == 0


def test_a_message_that_comes_back_is_not_republished_again() -> None:
    """Two streams that republish to each other would write for ever."""
    story = StreamStory(config(republish={"src": "s.>", "dest": "t.>"}))
    republisher = Republisher()
    story.publish(message(b"s.a"), message(b"s.a", Nats_Stream="S"), message(b"s.a", Nats_Stream="T"))
    found = [entry for entry in story.log.entries(1, story.log.last_index, 1 << 20) if entry.count]
    told = [one for entry in found for one in republisher.of_entry(story.state, entry)]
    assert [subject for subject, _, _ in told] == [b"t.a", b"t.a"]
