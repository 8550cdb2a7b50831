"""The meta group: what its leader decides about streams, who may ask for it, and where their replicas go."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.broker.jetstream.meta_leader.meta_story import APP, OPERATOR, meta

from supercluster.broker.jetstream.config.limits import ServerLimits
from supercluster.broker.jetstream.config.metadata_keys import RESOURCE_KEY
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.map_waits import MAP_WAIT_MS
from supercluster.broker.jetstream.meta_leader.memory_loss import LOST_REPORT_MS
from supercluster.broker.jetstream.meta_leader.stream_request import Decided, Fallen, StreamRequest


def test_create_update_and_delete() -> None:
    leader = meta()
    created = leader.done("create")
    assert created.assignment.members == ("east-0@vol-0",)
    again = leader.done("create")
    assert again.assignment.group == created.assignment.group
    assert leader.refused("create", max_msgs=5).err_code == 10058
    assert leader.refused("update", name="T").err_code == 10059
    changed = leader.done("update", max_msgs=5)
    assert (changed.assignment.config.max_msgs, changed.assignment.group) == (5, created.assignment.group)
    assert changed.version > created.version
    assert leader.done("update", max_msgs=5).version == changed.version
    assert leader.refused("update", storage="memory").err_code == 10052
    assert leader.refused("update", num_replicas=3).err_code == 10074
    leader.done("delete")
    assert leader.refused("delete").err_code == 10059
    assert leader.done("create").assignment.group != created.assignment.group


def test_overlapping_subjects_are_refused_per_account() -> None:
    leader = meta()
    leader.done("create", name="ONE", subjects=["a.*", "b"])
    for subjects in (["a.x"], [">"], ["*.x"], ["c", "b"]):
        assert leader.refused("create", name="TWO", subjects=subjects, no_ack=True).err_code == 10065
    other = replace(APP, account="other")
    leader.done("create", other, name="TWO", subjects=["a.x"])
    leader.done("create", name="TWO", subjects=["c"])
    assert leader.refused("update", name="TWO", subjects=["c", "a.>"]).err_code == 10065


def test_replicas_go_to_brokers_in_contact_of_the_wanted_cluster() -> None:
    leader = meta(east_1="east", east_2="east", west_0="west")
    nodes = [
        member.partition("@")[0]
        for member in leader.done("create", num_replicas=3, placement={"cluster": "east"}).assignment.members
    ]
    assert sorted(nodes) == ["east-0", "east-1", "east-2"]
    wrong = leader.refused("create", name="W", num_replicas=3, placement={"cluster": "west"})
    assert wrong.err_code == 10005
    assert (
        "1 of 4 nodes can be used: west-0; east-0 is in cluster east, not west; east-1" in wrong.description
    )
    wrong = leader.refused("create", name="X", num_replicas=5)
    assert all(node in wrong.description for node in ("east-0", "east-1", "east-2", "west-0"))
    assert "west-0 is in cluster west, not east, where it was asked for (east-0)" in wrong.description
    found = leader.done("create", name="Y", asked_at="west-0")
    assert found.assignment.members == ("west-0@vol-west_0",), "where no cluster is named, that of the client"
    assert leader.done("create", name="YY").assignment.members == ("east-0@vol-0",), "then the least loaded"
    preferred = {"supercluster.dev/preferred-leader": "east-2"}
    assert leader.done("create", name="Z", metadata=preferred).assignment.members == ("east-2@vol-east_2",)
    memory = leader.done("create", name="M", storage="memory").assignment.members
    assert memory[0].count(".") == 1, "a copy in memory has an identity of its own"
    assert meta().refused("create", num_replicas=3).err_code == 10074


@pytest.mark.covers("SF-23")
def test_only_the_operator_changes_a_declared_stream() -> None:
    leader = meta()
    declared: dict[str, Any] = {"metadata": {RESOURCE_KEY: "shop/orders"}}
    leader.done("create", OPERATOR, max_msgs=7, **declared)
    attempts: list[tuple[str, dict[str, Any]]] = [
        ("update", {"max_msgs": 5, **declared}),
        ("create", {}),
        ("delete", {}),
    ]
    for verb, fields in attempts:
        wrong = leader.refused(verb, APP, **fields)
        assert wrong.err_code == 19001
        assert "shop/orders" in wrong.description
    assert "max_msgs" in leader.refused("update", APP, max_msgs=5, **declared).description
    leader.done("create", APP, max_msgs=7, **declared)
    leader.done("update", OPERATOR, max_msgs=5, **declared)
    leader.done("delete", OPERATOR)


@pytest.mark.covers("SF-12")
def test_a_broker_alone_makes_no_stream_that_its_limit_has_no_room_for() -> None:
    leader = meta()
    leader.host.bytes_max = {"file": 10}
    assert leader.refused("create", name="A", max_bytes=11).err_code == 10047
    leader.done("create", name="A", max_bytes=6)
    wrong = leader.refused("create", name="B", max_bytes=5)
    assert (wrong.err_code, wrong.description) == (10047, "insufficient storage resources available")
    assert leader.refused("update", name="A", max_bytes=11).err_code == 10047
    leader.done("create", name="M", max_bytes=11, storage="memory")
    leader.done("create", name="C")
    leader.host.bytes_max = {"file": 1}
    leader.done("update", name="A", max_bytes=5)
    # Placement looks at what is free where there are several.
    several = meta(east_1="east")
    several.host.bytes_max = {"file": 1}
    several.done("create", name="A", max_bytes=11)


@pytest.mark.covers("SF-14")
def test_a_change_is_answered_when_all_in_contact_have_the_map() -> None:
    leader = meta(east_1="east")
    leader.host.applied["east-1"] = 0
    answers: list[Any] = []
    wanted = read_stream({"name": "S", "subjects": ["s"], "num_replicas": 1})
    leader.replica.request(StreamRequest("create", APP, "S", wanted, answers.append))
    leader.turn()
    assert answers == []
    leader.host.applied["east-1"] = leader.replica.applied_index
    leader.turn()
    assert len(answers) == 1
    # One that does not answer is waited for within a bound.
    leader.host.applied["east-1"] = 0
    leader.replica.request(StreamRequest("delete", APP, "S", None, answers.append))
    leader.turn(1)
    assert len(answers) == 1
    leader.turn(MAP_WAIT_MS)
    assert len(answers) == 2


def test_a_change_that_is_committed_late_is_waited_for_without_a_turn_every_millisecond(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Followers are slow: the bound for answers passes before there is anything to answer."""
    leader = meta()
    answers: list[Any] = []
    wanted = read_stream({"name": "S", "subjects": ["s"], "num_replicas": 1})
    with monkeypatch.context() as slow:
        slow.setattr(leader.replica, "_apply_on", lambda now_ms: None)
        slow.setattr(leader.replica, "_apply", lambda last, messages_max: None)
        leader.replica.request(StreamRequest("create", APP, "S", wanted, answers.append))
        for _ in range(8):
            leader.turn(MAP_WAIT_MS)
        due_ms = leader.replica.deadline_ms()
        assert due_ms is None or due_ms > leader.host.now_ms
        assert not leader.replica.tick(leader.host.now_ms)
    assert answers == []
    leader.turn(1)
    assert isinstance(answers[0], Decided), "it is answered with the turn that applies it"


def test_a_leader_that_falls_sends_everybody_on() -> None:
    leader = meta(east_1="east")
    leader.host.applied["east-1"] = 0
    answers: list[Any] = []
    for verb in ("create", "delete"):
        leader.replica.request(StreamRequest(verb, APP, "S", None, answers.append))
    leader.replica.stop_serving()
    assert answers == [Fallen.NOT_BEGUN] * 2, "nothing of it is in the log: the next leader may carry it out"


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_leader_that_falls_knows_what_became_of_a_deletion_that_is_applied(*, is_committed: bool) -> None:
    leader = meta(east_1="east")
    leader.done("create")
    leader.host.applied["east-1"] = 0  # It has an old map: nobody is answered yet.
    answers: list[Any] = []
    leader.replica.request(StreamRequest("delete", APP, "S", None, answers.append))
    if is_committed:
        leader.turn()
    else:
        leader.replica.propose_turn(leader.host.now_ms)
    assert answers == []
    leader.replica.stop_serving()
    assert [type(answer) for answer in answers] == [Decided if is_committed else Fallen]
    assert is_committed or answers == [Fallen.UNDECIDED]


def test_brokers_are_known_by_the_volume_they_came_with() -> None:
    leader = meta()
    leader.host.contact["east-1"] = ("east", "vol-1")
    leader.turn()
    assert leader.replica.state.brokers["east-1"].incarnation == "vol-1"
    leader.host.contact["east-1"] = ("east", "vol-2")
    leader.turn()
    assert leader.replica.state.brokers["east-1"].incarnation == "vol-2"
    index = leader.replica.log.last_index
    leader.turn(1000)
    assert leader.replica.log.last_index == index


@pytest.mark.covers("SF-4")
def test_a_stream_in_memory_begins_anew_only_when_all_its_copies_are_gone() -> None:
    leader = meta(east_1="east", east_2="east")
    first = leader.done("create", num_replicas=3, storage="memory").assignment
    leader.done("create", name="FILE")
    file_group = next(found.group for found in leader.replica.state.streams.values() if found.name == "FILE")

    def group_now() -> str:
        return leader.replica.state.streams["$G", "S"].group

    def lost(*nodes: str, group: str = first.group) -> None:
        for node in nodes:
            leader.replica.copy_lost(node, group, f"{node}@lost", leader.host.now_ms)
        leader.turn()

    lost("east-0", group=file_group)
    lost("east-0", "east-1")
    assert group_now() == first.group
    leader.turn(LOST_REPORT_MS + 1)
    lost("east-2")
    assert group_now() == first.group, "the others may have been given a copy since"
    lost("east-0", "east-1", "east-2")
    found = leader.replica.state.streams["$G", "S"]
    assert found.group != first.group
    assert not set(found.members) & set(first.members)
    assert found.config == first.config
    assert "MemoryLost" in leader.host.events
    lost("east-0", "east-1", "east-2")
    assert group_now() == found.group, "reports about the old group are void"
    assert leader.replica.state.by_group(file_group) is not None


def test_the_map_of_streams_comes_back_from_its_snapshot() -> None:
    leader = meta(east_1="east")
    leader.done("create", num_replicas=2, max_age=10**12)
    leader.done("create", name="T", metadata={"a": "b"})
    state = leader.replica.state
    assert MetaState.restore(state.snapshot()) == state
    replay = MetaState()
    for entry in leader.replica.log.entries(1, leader.replica.log.last_index, 1 << 30):
        replay.apply(entry)
    assert replay == state


def test_the_leaders_own_limit_holds_for_duplicate_windows() -> None:
    leader = meta()
    long_ns, allowed_ns = 20_000_000_000, 10_000_000_000
    leader.done("create", name="OLD", subjects=["old"], duplicate_window=long_ns)
    leader.host.server_limits = ServerLimits(duplicate_window_ms=10_000)
    assert leader.refused("create", duplicate_window=long_ns).err_code == 10052
    assert leader.done("create").assignment.config.duplicate_window_ns == allowed_ns
    assert leader.refused("update", duplicate_window=long_ns).err_code == 10052
    assert leader.replica.tail.state.streams[APP.account, "OLD"].config.duplicate_window_ns == long_ns
