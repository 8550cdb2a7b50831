"""Since when a copy is of no use although its broker is there is kept in the map of streams, and it is exchanged by that (MR-2)."""

from __future__ import annotations

import pytest
from tests.broker.jetstream.meta_leader.meta_story import OPERATOR, Meta
from tests.broker.jetstream.meta_leader.test_dead_members import MINUTE_MS, five, lose, nodes, replace

from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.broker_requests import forgettable, holders
from supercluster.broker.jetstream.meta_leader.copy_reports import COPIES_MAX, HALTED, NOTED_MS, SILENT_MS
from supercluster.broker.jetstream.meta_leader.upkeep import UPKEEP_EVERY_MS
from supercluster.broker.jetstream.node.failed_copies import REPORT_EVERY_MS

WHY = "the disk refuses the log"


def tell(leader: Meta, node: str, *groups: str) -> None:
    """The broker reports which of its copies are of no use."""
    assert leader.replica.upkeep is not None
    leader.replica.upkeep.copies.on_failed_copies(node, dict.fromkeys(groups, WHY), leader.host.now_ms)


def report(leader: Meta, total_ms: int, node: str, *groups: str) -> None:
    """Time passes, and the broker says the same at its pace."""
    for _ in range(total_ms // REPORT_EVERY_MS + 1):
        tell(leader, node, *groups)
        for _ in range(REPORT_EVERY_MS // UPKEEP_EVERY_MS):
            leader.turn(UPKEEP_EVERY_MS)


def silence(leader: Meta, total_ms: int) -> None:
    for _ in range(total_ms // UPKEEP_EVERY_MS + 1):
        leader.turn(UPKEEP_EVERY_MS)


def since_ms(leader: Meta, node: str) -> int:
    since_ns = leader.replica.state.failed_copies[node][leader.stream().group]
    return (leader.replica.leader_time_ns() - since_ns) // 1_000_000


@pytest.mark.covers("MR-2")
def test_the_map_knows_since_when_a_copy_is_of_no_use_whoever_leads_it() -> None:
    leader = five()
    group = leader.stream().group
    report(leader, NOTED_MS - 3000, "east-2", group)
    assert leader.replica.state.failed_copies == {}, "what is well again so soon is not worth an entry"
    report(leader, 30_000, "east-2", group)
    assert 30_000 <= since_ms(leader, "east-2") <= 40_000
    assert WHY in leader.host.texts[-1]
    assert leader.replica.upkeep is not None
    assert leader.replica.upkeep.copies.why("east-2", group) == WHY, (
        "for /admin/brokers, which the operator reads"
    )
    index = leader.replica.log.last_index
    leader.replica.stop_serving()
    leader.replica.start_serving(leader.host.now_ms)
    report(leader, 30_000, "east-2", group)
    assert 60_000 <= since_ms(leader, "east-2") <= 80_000, "the next leader goes by what was written"
    assert leader.replica.log.last_index == index, "it is written once"
    assert (
        MetaState.restore(leader.replica.state.snapshot()).failed_copies == leader.replica.state.failed_copies
    )
    tell(leader, "east-2")
    silence(leader, 1000)
    assert leader.replica.state.failed_copies == {}


@pytest.mark.covers("MR-2")
def test_a_broker_that_says_nothing_more_of_its_copies_has_usable_ones() -> None:
    leader = five()
    group = leader.stream().group
    report(leader, 10_000, "east-2", group)
    silence(leader, SILENT_MS - 4000)
    assert group in leader.replica.state.failed_copies["east-2"]
    silence(leader, 6000)
    assert leader.replica.state.failed_copies == {}
    report(leader, 10_000, "east-2", group)
    leader.replica.stop_serving()
    leader.replica.start_serving(leader.host.now_ms)
    silence(leader, SILENT_MS - 3000)
    assert group in leader.replica.state.failed_copies["east-2"], "a new leader waits for its word"
    silence(leader, 5000)
    assert leader.replica.state.failed_copies == {}


def test_of_a_broker_that_is_away_it_stands_and_of_another_volume_nothing_does() -> None:
    leader = five()
    group = leader.stream().group
    report(leader, 20_000, "east-2", group)
    lose(leader, "east-2")
    silence(leader, 30_000)
    assert since_ms(leader, "east-2") >= 50_000
    assert "east-2" in leader.replica.state.away
    leader.host.contact["east-2"] = ("east", "vol-new")
    silence(leader, 1000)
    assert (leader.replica.state.failed_copies, leader.replica.state.away) == ({}, {})


def test_saying_so_of_a_broker_that_is_away_does_not_begin_its_time_anew() -> None:
    leader = five()
    group = leader.stream().group
    report(leader, 3000, "east-2", group)
    lose(leader, "east-2")
    silence(leader, 10_000)
    before = leader.replica.state.away["east-2"]
    leader.host.contact["east-2"] = ("east", "vol-east_2")
    report(leader, 10_000, "east-2", group)
    assert "east-2" not in leader.replica.state.away
    assert before
    assert since_ms(leader, "east-2") <= 14_000, "what it said before is not counted on"


@pytest.mark.parametrize("what", ["no member", "no stream", "deleted"])
def test_what_the_map_does_not_give_to_the_broker_is_not_kept(what: str) -> None:
    leader = five()
    group = leader.stream().group
    if what == "no member":
        report(leader, 20_000, "east-4", group)
    elif what == "no stream":
        report(leader, 20_000, "east-2", "S.$G.other.t9")
    else:
        report(leader, 20_000, "east-2", group)
        assert leader.replica.state.failed_copies
        leader.done("delete", OPERATOR)
        silence(leader, 1000)
    assert leader.replica.state.failed_copies == {}


def test_a_report_is_bounded() -> None:
    leader = five()
    report(leader, 10_000, "east-2", *(f"S.$G.n{number}.t" for number in range(COPIES_MAX + 5)))
    assert leader.replica.upkeep is not None
    assert len(leader.replica.upkeep.copies._first_ms["east-2"]) == COPIES_MAX


@pytest.mark.covers("MR-2", "MR-7", "SF-8")
def test_a_copy_of_no_use_is_exchanged_in_one_change_and_one_that_is_usable_again_is_not() -> None:
    leader = five()
    group = leader.stream().group
    report(leader, 30_000, "east-2", group)
    early = replace(leader, "east-2")
    assert isinstance(early, ApiError)
    assert (early.err_code, "without a usable copy" in early.description) == (19005, True)
    report(leader, MINUTE_MS, "east-2", group)
    plan = replace(leader, "east-2", verb="plan_move")
    assert [found.node for found in plan.targets] == ["east-0", "east-1", "east-3"]
    tell(leader, "east-2")
    silence(leader, 1000)
    assert replace(leader, "east-2").err_code == 19005, "usable again, if only a moment ago"
    report(leader, MINUTE_MS + 10_000, "east-2", group)
    replace(leader, "east-2")
    move = leader.stream().move
    assert move is not None
    assert nodes(move.targets) == ["east-0", "east-1", "east-3"]


def test_the_longer_of_both_absences_counts() -> None:
    leader = five()
    group = leader.stream().group
    report(leader, 40_000, "east-2", group)
    lose(leader, "east-2")
    silence(leader, 25_000)
    replace(leader, "east-2")
    assert leader.stream().move is not None


@pytest.mark.covers("SF-34")
@pytest.mark.parametrize("node", ["east-2", "east-4"])
def test_a_halted_copy_counts_as_its_brokers_and_is_nobodys_to_replace(node: str) -> None:
    """A member's, and one that the stream went away from."""
    leader = five()
    state, group = leader.replica.state, leader.stream().group
    report(leader, 1000, node, f"{HALTED}{group}")
    assert holders(state) == dict.fromkeys({"east-0", "east-1", "east-2", node}, 1)
    assert f"the copy of stream S on {node} halted, and stays until a person decides" in leader.host.texts[-1]
    report(leader, MINUTE_MS, node, f"{HALTED}{group}")
    assert replace(leader, "east-2").err_code == 19005, "its broker is in contact"
    assert holders(MetaState.restore(state.snapshot())) == holders(state)
    lose(leader, node)
    silence(leader, MINUTE_MS)
    assert forgettable(state, [node], {node: 10 * MINUTE_MS}) == set()
    leader.host.contact[node] = ("east", f"vol-{node.replace('-', '_')}")
    report(leader, 1000, node)
    assert state.failed_copies == {}, "a person removed the mark"


def test_of_a_stream_that_was_deleted_no_halted_copy_counts() -> None:
    leader = five()
    group = leader.stream().group
    report(leader, 1000, "east-4", f"{HALTED}{group}")
    leader.done("delete", OPERATOR)
    assert holders(leader.replica.state) == {}
    silence(leader, 1000)
    assert leader.replica.state.failed_copies == {}


def test_a_report_travels() -> None:
    told = {"S.$G.a.t": "why", "S.$G.b.t": ""}
    assert frames.decode_failed_copies(memoryview(b"".join(frames.encode_failed_copies(told)))) == told
