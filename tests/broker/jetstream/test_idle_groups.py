"""Three brokers that hold many streams: those that nobody uses cost nothing, and wake when they are needed."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.many_streams import STREAMS, Brokers

from supercluster.broker.jetstream.frames import Frame, decode_leaderships
from supercluster.broker.ports import PeerInfo

pytestmark = pytest.mark.covers("RP-3", "SF-7")


def test_idle_groups_neither_tick_nor_send(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    brokers.let_pass(60_000)
    assert brokers.ticks == {}
    assert brokers.frames == []


def test_messages_that_will_expire_cost_nothing_until_then(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, max_age=60_000_000_000)
    brokers.publish("s3")
    brokers.fall_silent()
    brokers.let_pass(50_000)
    assert brokers.ticks == {}
    brokers.let_pass(15_000)
    assert [group.state.messages for group in brokers.copies("s3")] == [0, 0, 0]
    assert set(brokers.ticks) == {"s3"}, "the others went on sleeping"


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


def test_leaderships_are_told_in_one_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch)
    for core in brokers.cores:
        brokers.frames.clear()
        led = {group.id for group in core.groups.values() if group.serves}
        peer = next(iter(core.peers.values()))
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
