"""What our keys in a stream's metadata may say, and what becomes of a word that nobody knows."""

from __future__ import annotations

import json
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.jetstream.meta_leader.meta_story import meta
from tests.simulator.world import World

from supercluster.broker.jetstream.config import stream_checks
from supercluster.broker.jetstream.config.metadata_keys import (
    ACK_POLICIES,
    ACK_POLICY_KEY,
    FSYNC_KEY,
    PREFERRED_LEADER_KEY,
    PREFIX,
    RESOURCE_KEY,
    ack_policy_of,
    fsync_of,
)
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import ClientInfo
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.options import Fsync

WRONG = [
    (FSYNC_KEY, "bogus", "always"),
    (FSYNC_KEY, "", "always"),
    (ACK_POLICY_KEY, "Commit", "append"),
    (PREFERRED_LEADER_KEY, "east 0", "broker's name"),
    (PREFIX + "ack_policy", "commit", ACK_POLICY_KEY),
]


@pytest.mark.covers("RP-5", "RP-6")
@pytest.mark.parametrize(("key", "value", "right"), WRONG)
def test_a_word_that_nobody_knows_is_refused_with_what_would_be_right(
    key: str, value: str, right: str
) -> None:
    leader = meta()
    leader.done("create", name="T")
    for refusal in (
        leader.refused("create", metadata={key: value}),
        leader.refused("update", name="T", metadata={key: value}),
    ):
        assert refusal.err_code == 10052
        assert key in refusal.description
        assert right in refusal.description
    assert ("$G", "S") not in leader.replica.state.streams
    assert leader.stream("T").config.metadata == {}


@pytest.mark.covers("RP-6")
def test_an_old_word_does_not_keep_the_rest_of_an_update_out(monkeypatch: pytest.MonkeyPatch) -> None:
    leader = meta()
    with monkeypatch.context() as before:
        before.setattr(stream_checks, "check_metadata", lambda wanted, present: None)
        leader.done("create", metadata={FSYNC_KEY: "bogus"})
    leader.done("update", metadata={FSYNC_KEY: "bogus"}, max_msgs=5)
    assert leader.stream().config.max_msgs == 5
    leader.done("update", metadata={FSYNC_KEY: "always"})
    assert leader.stream().config.metadata == {FSYNC_KEY: "always"}


KEYS = (
    st.sampled_from([RESOURCE_KEY, ACK_POLICY_KEY, FSYNC_KEY, PREFERRED_LEADER_KEY, PREFIX, "owner"])
    | st.text()
)
WORDS = st.sampled_from(["always", "interval", "never", "commit", "append", "none", "east-0", ""]) | st.text()


@given(st.dictionaries(KEYS, WORDS, max_size=6))
def test_whatever_metadata_says_it_is_refused_or_has_a_meaning(metadata: dict[str, str]) -> None:
    with suppress(ApiError):
        found = stream_checks.read_stream({"name": "S", "metadata": metadata})
        stream_checks.check_create(found)
        assert metadata.get(FSYNC_KEY, "interval") == fsync_of(found.metadata)
        assert metadata.get(ACK_POLICY_KEY, "commit") == ack_policy_of(found.metadata)
    # What is committed may say anything: it is read all the same.
    assert Fsync(fsync_of(metadata))
    assert ack_policy_of(metadata) in ACK_POLICIES


def created(world: World, body: dict[str, object]) -> dict[str, object]:
    return asked(world, "CREATE", body)


def asked(world: World, call: str, body: dict[str, object]) -> dict[str, object]:
    cores = started(world)
    answers: list[bytes] = []
    world.on_reply(b"_R", lambda header, payload: answers.append(payload))
    info = ClientInfo("$G", "operator", is_operator=True)
    cores[0].on_api(info, f"$JS.API.STREAM.{call}.S".encode(), b"_R", b"", json.dumps(body).encode())
    world.want_turn("n0")
    assert world.run_until(partial(bool, answers), 10_000)
    found: dict[str, object] = json.loads(answers[0])
    return found


def started(world: World) -> list[BrokerCore]:
    for name in world.names:
        world.start(name)
    cores = [node.core for node in world.nodes.values() if node.core is not None]
    assert world.run_until(lambda: all(core.accepts_clients for core in cores), 5000)
    return cores


def copies(world: World) -> int:
    return sum(
        isinstance(group, StreamReplica) and group.failed is None
        for node in world.nodes.values()
        for group in (node.core.groups.values() if node.core is not None else ())
    )


@pytest.mark.covers("RP-6")
def test_a_committed_word_that_nobody_knows_is_told_and_harms_no_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a broker left it behind that took anything."""
    world = World(1)
    body = {"name": "S", "subjects": ["s"], "num_replicas": 3, "metadata": {FSYNC_KEY: "bogus"}}
    with monkeypatch.context() as before:
        before.setattr(stream_checks, "check_metadata", lambda wanted, present: None)
        assert "error" not in created(world, body)
    for _ in range(2):
        assert world.run_until(lambda: copies(world) == 3, 10_000)
        assert any("UnknownPolicy" in line and "'bogus'" in line for line in world.log)
        world.log.clear()
        for name in world.names:
            world.stop(name, power=False)
        started(world)


@pytest.mark.covers("RP-6", "SF-4")
def test_a_changed_policy_counts_at_once_also_where_a_process_was_killed() -> None:
    """What that one had left in memory under `never` is written again."""
    world = World(1)
    body = {"name": "S", "subjects": ["s"], "num_replicas": 3}
    assert "error" not in created(world, {**body, "metadata": {FSYNC_KEY: "never"}})
    assert world.run_until(lambda: copies(world) == 3, 10_000)
    world.run(world.now_us / 1000 + 1000)
    world.stop("n1", power=False)
    started(world)
    assert "error" not in asked(world, "UPDATE", {**body, "metadata": {FSYNC_KEY: "always"}})

    def policies() -> list[Fsync]:
        return [
            group.log.fsync
            for node in world.nodes.values()
            for group in (node.core.groups.values() if node.core is not None else ())
            if isinstance(group, StreamReplica) and isinstance(group.log, FileLog)
        ]

    assert world.run_until(lambda: policies() == [Fsync.ALWAYS] * 3, 10_000), policies()


@pytest.mark.covers("SF-4")
def test_an_error_with_one_group_leaves_the_broker_and_its_other_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(1, nodes=1)
    assert "error" not in created(world, {"name": "S", "subjects": ["s"]})
    world.stop("n0", power=False)
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(world, "_told", lambda name, group, reason, text: told.append((reason, text)))
    (core,) = started(world)
    # A second stream, whose beginning fails in a way that nobody thought of, when part of it is there.
    recover = StreamReplica.recover
    failed: list[StreamReplica] = []

    def fails(replica: StreamReplica, commit_index: int) -> None:
        if replica.assignment.name == "T":
            failed.append(replica)
            raise KeyError("nobody thought of this")
        recover(replica, commit_index)

    monkeypatch.setattr(StreamReplica, "recover", fails)
    info = ClientInfo("$G", "operator", is_operator=True)
    body = json.dumps({"name": "T", "subjects": ["t"]}).encode()
    core.on_api(info, b"$JS.API.STREAM.CREATE.T", b"_R2", b"", body)
    world.want_turn("n0")
    assert world.run_until(lambda: any(reason == "GroupFailed" for reason, _ in told), 10_000)
    assert next(text for reason, text in told if reason == "GroupFailed").endswith(
        "KeyError: 'nobody thought of this'"
    )
    assert [g.assignment.name for g in core.groups.values() if isinstance(g, StreamReplica)] == ["S"]
    with pytest.raises(DiskError, match="closed"):
        failed[0].log.append([])
    monkeypatch.setattr(StreamReplica, "recover", recover)
    assert world.run_until(lambda: copies(world) == 2, 20_000), "it is tried again"
