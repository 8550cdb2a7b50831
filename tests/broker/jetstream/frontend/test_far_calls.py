"""Calls of the API about streams that are on their way between two super-clusters, at brokers of either."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.broker.jetstream.core.test_far_links import FAR, WORLD, TwoWorlds

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.far_groups import any_of
from supercluster.broker.jetstream.links.frames import Frame, Request, ResponseStatus
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Following, StreamMigration, StreamStage, next_group
from supercluster.broker.migration.worlds import far_name, world_id
from supercluster.broker.ports import ClientInfo
from supercluster.broker.protocol.headers import no_responders

pytestmark = pytest.mark.covers("BG-4", "BG-5")

APP = ClientInfo("$G", "app", False)
OWN_WORLD = world_id("own")


class Story(TwoWorlds):
    """Three brokers with a stream S, and a linked broker of another super-cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.here: BrokerCore = self.up()[0]
        self.link(self.here)
        self.sent.clear()

    def show(self, **changes: Any) -> Assignment:
        """The map of this broker says something else of the stream."""
        state = self.here.map.replica.state  # type: ignore[union-attr]
        before = state.streams["$G", "S"]
        after = replace(before, **changes)
        state._put(("$G", "S"), after)
        self.here.ingest.set_map(list(self.here.map.streams), lambda: None)
        self.here._streams_changed([before.group] if before.group != after.group else [])
        return after

    def goes(self) -> Assignment:
        """The other super-cluster has it."""
        here, there = self.group, next_group(self.group, "m", 1)
        way = StreamMigration("m", 1, StreamStage.OPEN, WORLD, here, there)
        found = self.show(group=there, migration=way)
        self.here.share_groups({there: WORLD})
        return found

    def comes(self) -> Assignment:
        """It is on its way here."""
        following = Following("m", 1, "S.$G.S.x", WORLD, (f"{FAR}@vol.1",))
        return self.show(following=following)

    def client_calls(
        self, subject: bytes, body: object = None, info: ClientInfo = APP
    ) -> list[tuple[bytes, bytes]]:
        """What a client of this broker is answered at once, and later."""
        answers: list[tuple[bytes, bytes]] = []
        reply = b"_R.%d" % len(self.sent)
        self.world.on_reply(reply, lambda header, payload: answers.append((header, payload)))
        payload = json.dumps(body).encode() if body is not None else b""
        self.here.on_api(info, subject, reply, b"", payload)
        self.world.want_turn(self.here.node)
        self.pass_time(1)
        return answers

    def asked(self) -> list[tuple[str, Request]]:
        """Requests that went to the other super-cluster."""
        found = [(to, frames.decode_request(memoryview(body))) for to, body in self.told(Frame.REQUEST)]
        self.sent.clear()
        return found

    def hear_call(self, subject: bytes, body: object = None, number: int = 7, **changes: Any) -> None:
        """A broker of the other super-cluster asks this one about a name."""
        payload = json.dumps(body).encode() if body is not None else b""
        request = Request(
            "vol", number, any_of(self.here.env.settings.world), APP, subject, b"", b"", payload
        )
        self.hear(self.here, Frame.REQUEST, frames.encode_request(replace(request, **changes)))

    def responses(self) -> list[tuple[ResponseStatus, Any]]:
        self.pass_time(300)
        told = [frames.decode_response(memoryview(body)) for _, body in self.told(Frame.RESPONSE)]
        self.sent.clear()
        return [(status, json.loads(payload) if payload else None) for _, _, status, payload in told]


@pytest.fixture
def story() -> Story:
    return Story()


CREATE = {"name": "S", "subjects": ["s"]}


@pytest.mark.parametrize(
    ("call", "body"),
    [
        (b"STREAM.CREATE.S", CREATE),
        (b"STREAM.UPDATE.S", CREATE),
        (b"STREAM.DELETE.S", None),
        (b"STREAM.RESTORE.S", {"config": CREATE, "state": {}}),
    ],
)
def test_what_changes_a_stream_of_green_goes_to_any_broker_of_green(
    story: Story, call: bytes, body: object
) -> None:
    found = story.goes()
    operator = ClientInfo("$G", "op", is_operator=True)
    assert story.client_calls(b"$JS.API." + call, body, operator) == []
    [(to, request)] = story.asked()
    assert (to, request.group) == (FAR, any_of(WORLD))
    assert request.info == ClientInfo("$G", "op", is_operator=False)
    assert request.subject == b"$JS.API." + call
    assert found.group in {one.group for one in story.here.map.streams}, "blue's map is as it was"


def test_the_answer_of_green_is_the_answer(story: Story) -> None:
    story.goes()
    answers = story.client_calls(b"$JS.API.STREAM.DELETE.S")
    [(to, request)] = story.asked()
    body = [
        b"".join(
            frames.encode_response(request.origin, request.number, ResponseStatus.ANSWER, b'{"success":true}')
        )
    ]
    story.hear(story.here, Frame.RESPONSE, body)
    assert (to, answers) == (FAR, [(b"", b'{"success":true}')])


def test_reads_and_consumer_calls_go_to_greens_leader_and_to_any_broker_where_it_does_not_answer(
    story: Story,
) -> None:
    found = story.goes()
    leader = far_name("n2", WORLD)
    story.link(story.here, node=leader)
    story.here.leaderships.on_leadership(frames.Leadership(found.group, 9, leader, b""))
    story.sent.clear()
    calls = (
        b"STREAM.INFO.S",
        b"CONSUMER.INFO.S.c",
        b"STREAM.MSG.GET.S",
        b"DIRECT.GET.S",
        b"CONSUMER.MSG.NEXT.S.c",
    )
    for call in calls:
        story.client_calls(b"$JS.API." + call, {"seq": 1, "batch": 1})
    asked = story.asked()
    assert [(to, request.group) for to, request in asked] == [(leader, found.group)] * len(calls)
    story.pass_time(1100)
    again = {request.subject.removeprefix(b"$JS.API."): (to, request.group) for to, request in story.asked()}
    assert again[b"CONSUMER.MSG.NEXT.S.c"] == again[b"DIRECT.GET.S"] == (leader, found.group)
    assert {again[call][1] for call in calls[:3]} == {any_of(WORLD)}, (
        "it may be deleted there, and have no leader"
    )


def test_a_pull_that_blue_gives_back_late_goes_to_green(story: Story) -> None:
    before, found = story.group, story.goes()
    leader = FAR
    story.here.leaderships.on_leadership(frames.Leadership(found.group, 9, leader, b""))
    story.sent.clear()
    pull = Request("", 0, before, APP, b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"_I", b"", b'{"batch":3}')
    story.here.on_frame("n1", Frame.PULL_BACK, memoryview(b"".join(frames.encode_request(pull))))
    [(to, request)] = story.asked()
    assert (to, request.group, request.payload) == (leader, found.group, b'{"batch":3}')


def test_calls_about_a_stream_on_its_way_here_find_nobody(story: Story) -> None:
    story.comes()
    for call, body in ((b"STREAM.INFO.S", None), (b"CONSUMER.INFO.S.c", None), (b"STREAM.CREATE.S", CREATE)):
        [(header, payload)] = story.client_calls(b"$JS.API." + call, body)
        assert (header, json.loads(payload)["error"]["code"]) == (b"", 503), call
    for subject in (b"$JS.API.CONSUMER.MSG.NEXT.S.c", b"$JS.ACK.S.c.1.1.1.1.0"):
        assert story.client_calls(subject, {"batch": 1}) == [(no_responders(subject), b"")]
    [(_, payload)] = story.client_calls(b"$JS.API.STREAM.NAMES")
    assert json.loads(payload)["streams"] is None or "S" not in json.loads(payload)["streams"]


def test_a_name_is_answered_for_a_client_of_the_other_side_as_for_an_own_one(story: Story) -> None:
    story.hear_call(b"$JS.API.STREAM.INFO.S")
    [(status, answer)] = story.responses()
    assert (status, answer["config"]["name"]) == (ResponseStatus.ANSWER, "S")
    story.hear_call(b"$JS.API.STREAM.INFO.NOTHING", number=8)
    [(status, answer)] = story.responses()
    assert (status, answer["error"]["err_code"]) == (ResponseStatus.ANSWER, 10059)
    story.hear_call(b"$JS.API.STREAM.DELETE.S", number=9)
    [(status, answer)] = story.responses()
    assert (status, answer["success"]) == (ResponseStatus.ANSWER, True)
    story.hear_call(b"$JS.API.STREAM.DELETE.S", number=9)
    assert story.responses() == [(status, answer)], (
        "what is asked a second time is answered and not done again"
    )


def test_where_the_map_here_does_not_know_yet_that_it_came_the_asker_asks_again(story: Story) -> None:
    story.comes()
    story.hear_call(b"$JS.API.STREAM.INFO.S")
    assert story.responses() == [(ResponseStatus.NOT_LEADER, None)]


def test_a_restore_from_afar_begins_nothing_where_the_map_lags(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunks are sent to blue: what green had begun would take the name, and wait for them."""
    leader = story.meta_leader()
    assert leader is not None
    story.here = next(core for core in story.up() if core is not leader)
    story.link(story.here)
    before = story.here.map.find("$G", "S")
    assert before is not None
    operator = ClientInfo("$G", "op", is_operator=True)
    story.here.on_api(operator, b"$JS.API.STREAM.DELETE.S", b"", b"", b"")
    story.world.want_turn(story.here.node)
    story.until(lambda: all(core.map.find("$G", "S") is None for core in story.up()))
    monkeypatch.setattr(story.here.map, "find", lambda account, name: before)
    story.sent.clear()
    restore = {"config": CREATE, "state": {"messages": 0, "bytes": 0, "first_seq": 1, "last_seq": 0}}
    story.hear_call(b"$JS.API.STREAM.RESTORE.S", restore)
    [(status, answer)] = story.responses()
    assert (status, answer["error"]["err_code"]) == (ResponseStatus.ANSWER, 10130)
    assert leader.map.find("$G", "S") is None


def test_a_far_broker_speaks_for_its_clients_alone(story: Story) -> None:
    story.hear_call(b"$JS.API.STREAM.INFO.S", info=ClientInfo("$G", "op", is_operator=True))
    story.hear_call(b"$SC.STREAM.FACTS", number=8)
    assert story.responses() == []
    assert story.here.far_frames.dropped == 2
    story.here.share_groups({story.group: ""})
    other = ClientInfo("OTHER", "app", False)
    story.hear_call(b"$JS.API.STREAM.INFO.S", number=9, group=story.group, info=other)
    assert story.responses() == [(ResponseStatus.NOT_LEADER, None)], "the stream is another account's"
