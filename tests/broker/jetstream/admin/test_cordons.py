"""Cordoned brokers: whoever places a copy passes them over and says why; and the map has them only when all can read it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.broker.jetstream.meta_leader.meta_story import OPERATOR, Meta, meta
from tests.broker.jetstream.recovery.test_map_lineages import Story

from supercluster.broker.jetstream.admin import cordons
from supercluster.broker.jetstream.admin.cordons import read_cordon
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.cordons import Cordon
from supercluster.broker.jetstream.meta.level import NEEDED, raise_level
from supercluster.broker.jetstream.meta.operations import forget_broker
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.protocol.frames import VERSION
from supercluster.broker.raft.confchange import node_of

RACK = Cordon("node rack-7 is drained", "ns/demo")
LATER = VERSION + 1


def four() -> Meta:
    return meta(east_1="east", east_2="east", east_3="east")


def cordon(story: Meta, node: str, why: Cordon | None = RACK) -> ApiError | None:
    answers: list[ApiError | None] = []
    story.replica.brokers.cordon(node, why, answers.append, lambda: answers.append(None))
    story.turn()
    (answer,) = answers
    return answer


def nodes(story: Meta, name: str = "S") -> list[str]:
    found = story.stream(name)
    return sorted(node_of(m) for m in (found.move.targets if found.move is not None else found.members))


@pytest.mark.covers("MR-5", "OP-3")
def test_a_client_s_stream_is_placed_elsewhere_or_refused_with_the_cordoned_nodes() -> None:
    story = four()
    assert cordon(story, "east-0") is None
    story.done("create", num_replicas=3)
    assert nodes(story) == ["east-1", "east-2", "east-3"]
    assert cordon(story, "east-2") is None
    refused = story.refused("create", name="T", num_replicas=3)
    assert refused.err_code == 10005
    for node in ("east-0", "east-2"):
        assert f"{node} is cordoned (node rack-7 is drained)" in refused.description
    assert nodes(story) == ["east-1", "east-2", "east-3"], "who has a copy keeps it"
    assert cordon(story, "east-0", None) is None
    story.done("create", name="T", num_replicas=3)
    assert "BrokerUncordoned" in story.host.events


@pytest.mark.covers("MR-5")
def test_moves_removed_peers_and_more_replicas_pass_cordoned_brokers_over() -> None:
    story = meta(east_1="east", east_2="east", west_0="west", west_1="west")
    story.done("create", num_replicas=2)
    before = nodes(story)
    (spare,) = {"east-0", "east-1", "east-2"} - set(before)
    assert cordon(story, spare) is None
    more = story.refused("update", num_replicas=3)
    assert more.err_code == 10005
    assert f"{spare} is cordoned" in more.description
    gone = story.refused("remove_peer", peer=before[0])
    assert f"{spare} is cordoned" in gone.description
    assert cordon(story, "west-1") is None
    away = story.refused("update", num_replicas=2, placement={"cluster": "west"})
    assert away.err_code == 10005
    assert "west-1 is cordoned" in away.description
    assert cordon(story, "west-1", None) is None
    story.done("update", num_replicas=2, placement={"cluster": "west"})
    assert nodes(story) == ["west-0", "west-1"]


@pytest.mark.covers("MR-5")
def test_a_replica_is_not_added_by_name_on_a_cordoned_broker() -> None:
    story = four()
    story.done("create", num_replicas=3)
    (spare,) = {"east-0", "east-1", "east-2", "east-3"} - set(nodes(story))
    assert cordon(story, spare) is None
    refused = story.refused("move", OPERATOR, add=(spare,), move_id="more")
    assert f"{spare} is cordoned" in refused.description


@pytest.mark.covers("OP-3", "SF-13")
def test_nothing_stands_in_the_map_that_an_older_member_could_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As if cordons came with the next version, which all but one speak."""
    monkeypatch.setitem(NEEDED, "cordon", LATER)
    story = four()
    story.host.versions = dict.fromkeys(("east-0", "east-1", "east-3"), LATER)
    refused = cordon(story, "east-1")
    assert refused is not None
    assert refused.err_code == 19008
    assert f"east-2 speaks version {VERSION}" in refused.description
    del story.host.contact["east-3"]
    refused = cordon(story, "east-1")
    assert refused is not None
    assert "east-3 is out of contact" in refused.description
    assert (story.replica.state.level, story.replica.state.cordoned) == (0, {})
    assert b"level" not in story.replica.state.snapshot(), "an older member reads the snapshot as well"
    story.host.contact["east-3"] = ("east", "vol-east_3")
    story.host.versions["east-2"] = LATER
    assert cordon(story, "east-1") is None
    assert story.replica.state.level == LATER
    # From then on nobody is asked: an older one is refused in the handshake.
    del story.host.contact["east-3"]
    assert cordon(story, "east-2") is None


@pytest.mark.covers("SF-13")
def test_cordons_and_level_are_in_the_checkpoint_and_go_with_their_broker() -> None:
    story = four()
    cordon(story, "east-1")
    cordon(story, "east-2", Cordon("by hand"))
    story.replica.tail.propose(raise_level(LATER))
    story.turn()
    state = story.replica.state
    again = MetaState.restore(state.snapshot())
    assert (again.cordoned, again.level) == ({"east-1": RACK, "east-2": Cordon("by hand")}, LATER)
    assert again.snapshot() == state.snapshot()
    index = state.applied_index
    assert cordon(story, "east-1") is None
    assert state.applied_index == index, "what is so already is no entry"
    story.replica.tail.propose(forget_broker(state.brokers["east-2"]))
    story.turn()
    assert "east-2" not in story.replica.tail.state.cordoned
    unknown = cordon(story, "east-9")
    assert unknown is not None
    assert unknown.err_code == 10040
    assert cordon(story, "east-9", None) is None


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "the body has to be an object with reason, declaredBy"),
        ({"why": "x"}, "the body has to be an object with reason, declaredBy"),
        ({"reason": ""}, "reason is ''; it has to be a text of 1 to 200"),
        ({"reason": "x" * 201}, "has to be a text of 1 to 200"),
        ({"reason": "x", "declaredBy": 7}, "declaredBy is '7'"),
    ],
)
def test_a_wrong_body_is_named(body: Any, words: str) -> None:
    with pytest.raises(ApiError, match=words.split(";", maxsplit=1)[0]):
        read_cordon(body)


@pytest.mark.covers("MR-5", "OP-3")
def test_any_broker_takes_the_call_and_all_know_of_it() -> None:
    story = Story(5)
    answers: list[tuple[int, Any]] = []

    def call(method: str, body: Any = None) -> tuple[int, Any]:
        answers.clear()
        story.core("n4").calls.cordon(method, "n0", body, lambda *told: answers.append(told))
        story.world.want_turn("n4")
        story.until(lambda: bool(answers))
        return answers[0]

    assert call("PUT", {"reason": "a disk that is to be changed"})[0] == 200
    story.until(story.all_have_the_map)
    for core in story.up():
        core.calls.broker("GET", "n0", lambda status, told: answers.append((status, told)))
        assert answers.pop()[1]["cordoned"] == {"reason": "a disk that is to be changed", "declaredBy": ""}
    story.create("n1", replicas=3)
    assert "n0" not in [node_of(member) for member in story.found().members]
    refused = story.ask("n2", "STREAM.CREATE.T", {"name": "T", "subjects": ["t"], "num_replicas": 5})
    assert refused["error"]["err_code"] == 10005
    assert "n0 is cordoned (a disk that is to be changed)" in refused["error"]["description"]
    assert call("DELETE") == (200, {"node": "n0", "cordoned": None})
    story.create("n1", "T", replicas=5)


@pytest.mark.covers("OP-3")
def test_a_leader_of_an_older_version_does_not_know_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It answers in the words of JetStream's API, and no broker may stumble over that."""
    story = Story(3)
    answers: list[tuple[int, Any]] = []
    monkeypatch.setattr(cordons, "is_internal", lambda subject: False)
    follower = next(core for core in story.up() if core.meta is not None and not core.meta.serves)
    follower.calls.cordon("DELETE", "n0", None, lambda *told: answers.append(told))
    story.world.want_turn(follower.node)
    story.until(lambda: bool(answers))
    ((status, told),) = answers
    assert status == 503
    assert "older version" in told["error"]
