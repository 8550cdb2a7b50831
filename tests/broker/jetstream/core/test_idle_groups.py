"""Three brokers that hold many streams: those that nobody uses cost nothing, and wake when they are needed."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.broker.jetstream.core.many_streams import STREAMS, Brokers

from supercluster.broker.jetstream.links.frames import Frame, decode_leaderships, decode_raft
from supercluster.broker.jetstream.replica import election_slots
from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.ports import PeerInfo
from supercluster.broker.raft.config import Role
from supercluster.broker.storage.log.log import FileLog
from supercluster.broker.storage.log.sync_pace import QUIET_MS

pytestmark = pytest.mark.covers("RP-3", "SF-7")


def test_idle_groups_neither_tick_nor_send(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    brokers.let_pass(60_000)
    assert brokers.ticks == {}
    assert brokers.frames == []


def test_messages_that_will_expire_cost_nothing_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, max_age=2 * QUIET_MS * 1_000_000)
    brokers.publish("s3")
    brokers.fall_silent()
    brokers.let_pass(QUIET_MS - 10_000)
    assert brokers.ticks == {}
    brokers.let_pass(15_000)
    assert [group.state.messages for group in brokers.copies("s3")] == [0, 0, 0]
    assert set(brokers.ticks) == {"s3"}, "the others went on sleeping"


@pytest.mark.covers("SF-4")
def test_a_stream_that_nobody_uses_any_more_ticks_once_and_then_owes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch)
    for _ in range(2):
        brokers.publish("s3")
        brokers.let_pass(5_000)
    brokers.ticks.clear()
    brokers.frames.clear()
    logs = [group.log for group in brokers.copies("s3")]
    assert [log._hard.owes for log in logs if isinstance(log, FileLog)] == [True] * 3
    brokers.let_pass(2 * QUIET_MS)
    assert [log._hard.owes for log in logs if isinstance(log, FileLog)] == [False] * 3
    assert brokers.ticks == {"s3": 3}
    assert brokers.frames == []


def test_a_stream_that_is_used_wakes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    brokers.publish("s5")
    brokers.fall_silent()
    assert brokers.ticks == {}
    brokers.publish("s5")
    brokers.let_pass(5_000)
    assert set(brokers.ticks) == {"s5"}
    assert brokers.is_silent()


def test_a_lost_broker_wakes_its_groups_and_they_elect(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    brokers.world.stop("n1", power=False)
    names = [f"s{number}" for number in range(STREAMS)]
    assert brokers.world.run_until(
        lambda: all(any(group.serves for group in brokers.copies(name)) for name in names), 10_000
    )
    brokers.let_pass(2_000)
    assert set(names) <= set(brokers.ticks)


@pytest.mark.covers("MV-5")
def test_each_lost_leader_costs_one_election_and_few_stand_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    names = [f"s{number}" for number in range(STREAMS)]
    leaders = {name: g.host.node for name in names for g in brokers.copies(name) if g.serves}
    ((lost, _),) = Counter(leaders.values()).most_common(1)
    led = {name for name in names if leaders[name] == lost}
    assert len(led) > 1
    terms = {name: max(group.raft.term for group in brokers.copies(name)) for name in names}
    monkeypatch.setattr(election_slots, "STANDING_MAX", 1)
    most = 0

    def all_lead() -> bool:
        nonlocal most
        for core in brokers.cores:
            roles = [g.raft.role for g in core.groups.values() if g.id != META_GROUP]
            most = max(most, roles.count(Role.PRECANDIDATE) + roles.count(Role.CANDIDATE))
        return all(any(group.serves for group in brokers.copies(name)) for name in names)

    brokers.world.stop(lost, power=False)
    assert brokers.world.run_until(all_lead, 10_000)
    assert most == 1
    for name in names:
        assert max(group.raft.term for group in brokers.copies(name)) == terms[name] + (name in led)


def test_groups_without_a_majority_take_no_place_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    for name in ("n0", "n1"):
        brokers.world.stop(name, power=False)
    brokers.let_pass(5_000)
    (core,) = brokers.cores
    standing = core.copies.schedule._slots
    assert not standing._standing
    assert not standing.could_admit


def test_groups_fall_silent_without_a_broker_that_is_away_and_wake_when_it_is_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers(monkeypatch)
    brokers.world.stop("n1", power=False)
    brokers.let_pass(3_000)
    brokers.publish("s3")
    brokers.publish("s4")
    brokers.fall_silent()
    brokers.let_pass(60_000)
    assert set(brokers.ticks) <= {META_GROUP}, "it notes for how long a broker is away"
    raft = [body for _, _, kind, body in brokers.frames if kind == Frame.RAFT]
    assert {group for body in raft for group, _ in decode_raft(memoryview(body))} <= {META_GROUP}
    brokers.world.start("n1")
    last = {name: brokers.copies(name)[0].state.last_seq for name in ("s3", "s4")}
    assert brokers.world.run_until(
        lambda: all(
            [group.state.last_seq for group in brokers.copies(name)] == [seq] * 3
            for name, seq in last.items()
        ),
        10_000,
    )
    brokers.fall_silent()


def test_leaderships_are_told_in_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    for core in brokers.cores:
        brokers.frames.clear()
        led = {group.id for group in core.groups.values() if group.serves}
        peer = next(iter(core.peers.linked.values()))
        core.on_link_up(
            PeerInfo(
                node=peer.node,
                cluster=peer.cluster,
                incarnation=peer.incarnation,
                process=peer.process,
                client_url="",
                meta_state=1,
                version=1,
            )
        )
        told = [body for _, _, kind, body in brokers.frames if kind == Frame.LEADER]
        assert len(told) == bool(led)
        assert {news.group for body in told for news in decode_leaderships(memoryview(body))} == led


def test_a_wall_clock_that_is_set_moves_what_waits_for_a_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, max_age=3_600_000_000_000)
    brokers.publish("s3")
    brokers.fall_silent()
    for node in brokers.world.nodes.values():
        node.clock._offset_ns += 3_600_000_000_000
    brokers.let_pass(20_000)
    assert [group.state.messages for group in brokers.copies("s3")] == [0, 0, 0]
