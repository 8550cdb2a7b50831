"""Clients that stay at blue's brokers while their stream goes to green, told with whole brokers in virtual time."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.broker.migration.two_worlds import TwoWorlds
from tests.broker.moves.world import Load
from tests.simulator.consumers import INFO
from tests.simulator.cutover_plan import BLUE, GREEN
from tests.simulator.ledger import MAIN

from supercluster.broker.jetstream.errors import STREAM_FAR
from supercluster.broker.protocol.not_stored import not_stored

SECOND = 1_000_000_000
CONFIG: dict[str, Any] = {"name": MAIN, "subjects": ["orders.>"], "num_replicas": 3, "allow_direct": True}
NEXT = f"$JS.API.CONSUMER.MSG.NEXT.{MAIN}.c"
ASKED = f"$JS.API.CONSUMER.INFO.{MAIN}.c"


class Answers:
    """What one client's call came to."""

    def __init__(self) -> None:
        self.headers: list[bytes] = []
        self.payloads: list[bytes] = []
        self.errors: list[str] = []

    def take(self, header: bytes, payload: bytes) -> None:
        self.headers.append(header)
        self.payloads.append(payload)

    def __bool__(self) -> bool:
        return bool(self.payloads)

    @property
    def json(self) -> dict[str, Any]:
        (payload,) = self.payloads
        found: dict[str, Any] = json.loads(payload)
        return found


class Story(TwoWorlds):
    """Brokers of both have the same names; blue has a stream with a consumer, and green is told about neither."""

    def __init__(self) -> None:
        super().__init__(3, equal_names=True)
        self.begin()
        self.stages: list[str] = []
        self.at_fence: list[Any] = []
        """Called when blue has fenced the stream, and green has not opened it."""
        self.on_event = self._note
        for subject, body in (
            (f"STREAM.CREATE.{MAIN}", CONFIG),
            (f"CONSUMER.DURABLE.CREATE.{MAIN}.c", self.consumer()),
        ):
            answer = self.api("blue-1", f"$JS.API.{subject}", body)
            assert answer is not None
            assert "error" not in answer, answer

    @staticmethod
    def consumer(name: str = "c", **more: Any) -> dict[str, Any]:
        config = {"durable_name": name, "ack_policy": "explicit", "ack_wait": 5 * SECOND, **more}
        return {"stream_name": MAIN, "config": config}

    def _note(self, node: str, group: str, reason: str, text: str) -> None:
        if reason == "MigrationStage" and ": fenced: " in text:
            calls, self.at_fence = self.at_fence, []
            for call in calls:
                self.at(0, call)

    def call(self, key: str, subject: str, body: Any = None, reply: bytes = b"") -> Answers:
        """A client of that broker sends something to the API, or acknowledges."""
        core = self.nodes[key].core
        assert core is not None
        answers = Answers()
        self._replies += 1
        reply = reply or b"_R.%d" % self._replies
        self.on_reply(reply, answers.take)
        payload = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        core.on_api(INFO, subject.encode(), reply, b"", payload)
        self.want_turn(key)
        return answers

    def pull(self, key: str, **request: Any) -> list[Any]:
        """A client of that broker pulls; what its inbox gets."""
        self._replies += 1
        inbox = b"_I.%d" % self._replies
        items: list[Any] = []
        self.on_inbox(inbox, items.extend)
        core = self.nodes[key].core
        assert core is not None
        core.on_api(INFO, NEXT.encode(), inbox, b"", json.dumps(request).encode())
        self.want_turn(key)
        return items

    def captures(self, key: str, subject: str) -> str | None:
        """The stream that a client of that broker publishes to."""
        core = self.nodes[key].core
        window = core.capture("$G", subject.encode()) if core is not None else None
        return window.stream if window is not None else None

    def publish(self, key: str, subject: str, *, is_asked: bool = False) -> Answers:
        """A client of that broker publishes a message, and asks for an acknowledgement or does not."""
        core = self.nodes[key].core
        assert core is not None
        answers = Answers()
        self._replies += 1
        reply = b"_R.%d" % self._replies if is_asked else b""
        self.on_reply(reply, answers.take)
        window = core.capture("$G", subject.encode())
        assert window is not None, f"no stream has {subject}: it would be dropped without a word"
        publisher = Load(self, key, "plain", 1, "once")
        publisher = Load(self, key, "plain", 1, f"once{self._replies}")
        answers.errors = publisher.errors
        assert window.take(publisher, subject.encode(), reply, b"", publisher.payload(0))
        self.want_turn(key)
        return answers

    def go_over(self) -> None:
        """The stream goes from blue to green, and every broker of blue knows it."""
        self.migrate()

        def is_far(key: str) -> bool:
            core = self.nodes[key].core
            found = (
                core.meta.state.streams.get(("$G", MAIN))
                if core is not None and core.meta is not None
                else None
            )
            return found is not None and bool(found.far_world)

        assert self.run_until(lambda: all(map(is_far, self.brokers(BLUE))), 20_000)
        assert self.run_until(lambda: self.side_of.get(self.leader_key()) == GREEN, 5000)


def seqs(items: Sequence[Any]) -> list[int]:
    """The sequences of the messages among them."""
    return [int(reply.split(b".")[5]) for _, reply, _, _ in items if reply]


def statuses(items: Sequence[Any]) -> list[bytes]:
    return [header.split(b"\r\n")[0] for _, reply, header, _ in items if not reply]


@pytest.fixture
def story() -> Story:
    return Story()


@pytest.mark.covers("BG-4", "BG-10")
def test_publishers_at_blue_go_on_without_a_loss_and_a_pull_is_served_once(story: Story) -> None:
    for number, kind in enumerate(("acked", "plain", "acked")):
        story.load(f"blue-{number}", kind)
    items = story.pull("blue-2", batch=250, expires=60 * SECOND)
    story.run_ms(500)
    assert 0 < len(seqs(items)) < 100
    story.go_over()
    story.run_ms(3000)
    assert seqs(items) == list(range(1, 251)), "all that it asked for, in order, and no more"
    for load in story.loads:
        times = load.ack_times_us
        assert max((b - a for a, b in itertools.pairwise(times)), default=0) < 250_000, "the stall"
    story.finish()


@pytest.mark.covers("BG-4", "BG-5")
def test_what_is_asked_between_the_fence_and_the_opening_is_answered_by_green(story: Story) -> None:
    load = story.load("blue-0", "acked")
    found: dict[str, Answers] = {}
    items: list[list[Any]] = []

    def ask() -> None:
        found["info"] = story.call("blue-0", f"$JS.API.STREAM.INFO.{MAIN}")
        found["create"] = story.call(
            "blue-1", f"$JS.API.CONSUMER.DURABLE.CREATE.{MAIN}.d", Story.consumer("d")
        )
        found["delete"] = story.call("blue-2", f"$JS.API.CONSUMER.DELETE.{MAIN}.nobody")
        found["get"] = story.call("blue-2", f"$JS.API.DIRECT.GET.{MAIN}", {"seq": 1})
        items.append(story.pull("blue-0", batch=2, expires=30 * SECOND))
        assert not any(found.values())

    story.at_fence.append(ask)
    story.run_ms(300)
    story.go_over()
    assert story.run_until(lambda: all(found.values()) and len(items[0]) == 2, 2000)
    assert found["info"].json["cluster"]["name"] == "green"
    assert found["create"].json["config"]["durable_name"] == "d"
    assert found["delete"].json["error"]["err_code"] == 10014, "nobody has carried it out before"
    assert found["get"].payloads[0] in story.ledger.stored
    assert seqs(items[0]) == [1, 2]
    assert load.acked
    story.finish()


@pytest.mark.covers("BG-4", "SF-2")
def test_acknowledgements_of_all_moments_count_once(story: Story) -> None:
    """What blue confirmed is not seen again, and what comes later is confirmed by green alone."""
    story.load("blue-0", "acked")
    items = story.pull("blue-1", batch=12, expires=60 * SECOND)
    assert story.run_until(lambda: len(seqs(items)) == 12, 2000)
    subjects = [reply.decode() for _, reply, _, _ in items]
    confirmed = [story.call("blue-1", subjects[at], b"+ACK") for at in range(4)]
    assert story.run_until(lambda: all(confirmed), 1000)
    story.at_fence.append(
        lambda: confirmed.extend(story.call("blue-2", subjects[at], b"+ACK") for at in range(4, 8))
    )
    story.go_over()
    assert story.run_until(lambda: len(confirmed) == 8 and all(confirmed), 2000)
    confirmed += [story.call("blue-0", subjects[at], b"+ACK") for at in range(8, 11)]
    assert story.run_until(lambda: all(confirmed), 1000)
    answer = story.call("blue-0", ASKED)
    assert story.run_until(lambda: bool(answer), 1000)
    assert answer.json["ack_floor"]["stream_seq"] == 11
    assert answer.json["num_ack_pending"] == 1
    again = story.pull("blue-1", batch=1, expires=20 * SECOND)
    story.run_ms(6000)
    assert seqs(again)[:1] == [13], "new messages come first, and nothing that was confirmed"
    redelivered = story.pull("green-1", batch=1000, no_wait=True)
    story.run_ms(200)
    assert set(seqs(redelivered)) & set(range(1, 13)) <= {12}
    story.finish()


@pytest.mark.covers("BG-5", "MV-10")
def test_pulls_at_blue_that_do_not_wait_that_expire_and_that_beat(story: Story) -> None:
    story.load("blue-0", "acked")
    story.run_ms(200)
    story.go_over()
    for load in story.loads:
        load.runs = False
    story.run_ms(300)
    taken = story.pull("blue-0", batch=1000, no_wait=True)
    story.run_ms(100)
    last = max(story.ledger.acked.values())
    assert (seqs(taken), statuses(taken)) == (list(range(1, last + 1)), [b"NATS/1.0 404 No Messages"])
    empty = story.pull("blue-1", batch=5, no_wait=True)
    beats = story.pull("blue-2", batch=5, expires=SECOND, idle_heartbeat=SECOND // 5)
    story.run_ms(1500)
    assert statuses(empty) == [b"NATS/1.0 404 No Messages"]
    assert statuses(beats)[:3] == [b"NATS/1.0 100 Idle Heartbeat"] * 3
    assert statuses(beats)[-1] == b"NATS/1.0 408 Request Timeout"
    answer = story.call("blue-1", "$JS.API.CONSUMER.MSG.NEXT.ORDERS.nobody", {"batch": 1})
    assert story.run_until(lambda: bool(answer), 1000)
    assert b" 503" in answer.headers[0]
    story.finish()


@pytest.mark.covers("BG-4", "BG-10")
@pytest.mark.parametrize("victim", ["blue-0", "blue-2"])
def test_a_broker_of_blue_that_starts_anew_publishes_to_green(story: Story, victim: str) -> None:
    load = story.load(victim, "retry")
    other = story.load("blue-1", "acked")
    story.run_ms(300)
    story.go_over()
    before = len(load.acked)
    story.stop(victim, power=False)
    story.run_ms(300)
    story.start(victim)
    assert story.run_until(lambda: len(load.acked) > before + 20, 10_000)
    assert other.errors == []
    story.finish()


@pytest.mark.covers("BG-4")
def test_publishers_at_blue_follow_greens_next_leader(story: Story) -> None:
    loads = [story.load(f"blue-{number}", "acked") for number in range(3)]
    items = story.pull("blue-0", batch=100_000, expires=60 * SECOND)
    story.run_ms(200)
    story.go_over()
    victim = story.leader_key()
    story.stop(victim, power=False)
    story.run_ms(3000)
    assert story.leader_key() not in ("", victim)
    before = [len(load.acked) for load in loads]
    story.run_ms(1000)
    assert all(len(load.acked) > count for load, count in zip(loads, before, strict=True))
    story.start(victim)
    story.finish()
    assert len(seqs(items)) == len(set(seqs(items))), "no message comes twice"


@pytest.mark.covers("BG-8", "BG-5")
def test_the_stream_is_changed_and_deleted_in_green_by_a_client_of_blue(story: Story) -> None:
    story.load("blue-0", "acked")
    story.run_ms(200)
    story.go_over()
    changed = story.call("blue-1", f"$JS.API.STREAM.UPDATE.{MAIN}", CONFIG | {"description": "in green"})
    assert story.run_until(lambda: bool(changed), 5000)
    assert changed.json["config"]["description"] == "in green"
    there = story.assignment(GREEN)
    assert there is not None
    assert there.config.description == "in green"
    same = story.call("blue-2", f"$JS.API.STREAM.CREATE.{MAIN}", CONFIG | {"description": "other"})
    assert story.run_until(lambda: bool(same), 5000)
    assert same.json["error"]["err_code"] == 10058, "the name is taken, in green"
    story.finish()
    deleted = story.call("blue-1", f"$JS.API.STREAM.DELETE.{MAIN}")
    assert story.run_until(lambda: bool(deleted), 5000)
    assert deleted.json["success"]
    assert story.assignment(GREEN) is None
    gone = story.call("blue-0", f"$JS.API.STREAM.INFO.{MAIN}")
    assert story.run_until(lambda: bool(gone), 5000)
    assert gone.json["error"]["err_code"] == 10059


@pytest.mark.covers("BG-4", "BG-8")
def test_a_restore_at_blue_is_refused_by_green_and_begins_nothing(story: Story) -> None:
    """Its chunks would find no stream of that name at blue, and green would wait for them."""
    story.go_over()
    body = {"config": CONFIG, "state": {"messages": 0, "bytes": 0, "first_seq": 1, "last_seq": 0}}
    taken = story.call("blue-1", f"$JS.API.STREAM.RESTORE.{MAIN}", body)
    assert story.run_until(lambda: bool(taken), 5000)
    assert taken.json["error"]["err_code"] == 10130, "green has a stream of that name"
    deleted = story.call("green-0", f"$JS.API.STREAM.DELETE.{MAIN}")
    assert story.run_until(lambda: bool(deleted) and story.assignment(GREEN) is None, 5000)
    refused = story.call("blue-1", f"$JS.API.STREAM.RESTORE.{MAIN}", body)
    assert story.run_until(lambda: bool(refused), 5000)
    assert refused.json["error"]["err_code"] == STREAM_FAR
    assert MAIN in refused.json["error"]["description"]
    assert story.assignment(GREEN) is None


@pytest.mark.covers("BG-8", "SF-22")
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_restore_at_a_broker_of_blue_whose_map_lags_begins_nothing(story: Story, is_deleted: bool) -> None:
    """It asks blue's map, whose leader knows that green has the stream, and then green."""
    story.migrate()

    def is_far(key: str) -> bool:
        core = story.nodes[key].core
        found = core.map.find("$G", MAIN) if core is not None else None
        return found is not None and bool(found.far_world)

    assert story.run_until(lambda: is_far(story.map_leader_key(BLUE)), 20_000)
    lagging = [key for key in story.brokers(BLUE) if not is_far(key)]
    assert lagging
    if is_deleted:
        leader = story.map_leader(GREEN)
        assert leader is not None
        story.call(story.map_leader_key(GREEN), f"$JS.API.STREAM.DELETE.{MAIN}")
    body = {"config": CONFIG, "state": {"messages": 0, "bytes": 0, "first_seq": 1, "last_seq": 0}}
    calls = [story.call(key, f"$JS.API.STREAM.RESTORE.{MAIN}", body) for key in lagging]
    assert story.run_until(lambda: all(calls), 10_000)
    assert {call.json["error"]["err_code"] for call in calls} <= {10130, STREAM_FAR}
    story.run_ms(500)
    for side in (BLUE, GREEN):
        found = story.assignment(side)
        assert found is None or found.restoring is None
    assert is_far(story.map_leader_key(BLUE))
    if not is_deleted:
        story.finish()


WIDER = CONFIG | {"subjects": ["orders.>", "returns.*"]}


@pytest.mark.covers("BG-4", "BG-5")
@pytest.mark.parametrize("asked", ["blue-1", "green-0"])
def test_a_subject_that_green_gives_the_stream_is_captured_at_blue(story: Story, asked: str) -> None:
    """A publish without a reply would be dropped there without a word."""
    story.go_over()
    changed = story.call(asked, f"$JS.API.STREAM.UPDATE.{MAIN}", WIDER)
    assert story.run_until(lambda: bool(changed), 5000)
    assert changed.json["config"]["subjects"] == WIDER["subjects"]
    if asked == "green-0":
        story.run_ms(10)
    story.publish("blue-1", "returns.a")
    told = story.publish("blue-1", "returns.a", is_asked=True)
    assert story.run_until(lambda: bool(told), 5000)
    assert told.json == {"stream": MAIN, "seq": 2}
    names = story.call("blue-1", "$JS.API.STREAM.NAMES", {"subject": "returns.a"})
    assert story.run_until(lambda: bool(names), 1000)
    assert names.json["streams"] == [MAIN]
    story.call("green-1", f"$JS.API.STREAM.UPDATE.{MAIN}", CONFIG)
    story.run_ms(500)
    assert all(story.captures(key, "returns.a") is None for key in story.brokers(BLUE))


@pytest.mark.covers("BG-4")
def test_a_broker_of_blue_that_starts_anew_hears_what_green_captures(story: Story) -> None:
    story.go_over()
    story.call("green-0", f"$JS.API.STREAM.UPDATE.{MAIN}", WIDER)
    story.run_ms(500)
    story.stop("blue-2", power=False)
    story.run_ms(300)
    story.start("blue-2")
    assert story.run_until(lambda: story.captures("blue-2", "returns.a") is not None, 10_000)


@pytest.mark.covers("BG-4")
def test_a_subject_of_a_stream_that_is_still_blues_stays_blues(story: Story) -> None:
    """Green, which does not know that stream, gives its subject to another one."""
    story.go_over()
    own = story.call("blue-0", "$JS.API.STREAM.CREATE.OWN", {"name": "OWN", "subjects": ["returns.*"]})
    changed = story.call("green-0", f"$JS.API.STREAM.UPDATE.{MAIN}", WIDER)
    assert story.run_until(lambda: bool(own) and bool(changed), 5000)
    assert "error" not in own.json
    assert "error" not in changed.json
    story.run_ms(100)
    assert [story.captures(key, "returns.a") for key in story.brokers(BLUE)] == ["OWN"] * 3


@pytest.mark.covers("BG-4", "SF-15")
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_what_is_published_at_blue_for_a_stream_that_green_deleted_is_refused_in_words(
    story: Story, is_made_anew: bool
) -> None:
    """Blue's map goes on to have it. Were its subjects nobody's there, a publish without a reply would vanish, although a stream that was
    made anew captures it on green."""
    story.go_over()
    deleted = story.call("green-0", f"$JS.API.STREAM.DELETE.{MAIN}")
    assert story.run_until(lambda: bool(deleted), 5000)
    if is_made_anew:
        made = story.call("green-0", f"$JS.API.STREAM.CREATE.{MAIN}", CONFIG)
        assert story.run_until(lambda: bool(made), 5000)
        assert "error" not in made.json
    asked = story.publish("blue-1", "orders.a", is_asked=True)
    plain = story.publish("blue-2", "orders.a")
    assert story.run_until(lambda: bool(asked) and bool(plain.errors), 12_000)
    assert b" 503" in asked.headers[0]
    assert plain.errors == [not_stored(MAIN, f"stream {MAIN} has had no leader for too long")]
