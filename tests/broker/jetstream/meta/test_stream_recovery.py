"""May a stream go on from one copy? Situations, and what is said in each (RP-8, SF-9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.stream_recovery import (
    ADOPTED_NS_MAX,
    CopyFacts,
    Recovery,
    Situation,
    judge,
    why_alive,
)
from supercluster.broker.jetstream.replica.lineage import has_later, is_same_stream, lineage_of, next_lineage

VOTERS = ("a@1", "b@2", "c@3")
GROUP = "S.$G.ORDERS.0a1b"


def copy(node: str, last_seq: int = 10, **changes: Any) -> CopyFacts:
    member = next((one for one in VOTERS if one.startswith(f"{node}@")), f"{node}@9")
    found = CopyFacts(
        node,
        GROUP,
        member,
        is_open=True,
        last_term=2,
        last_index=last_seq + 5,
        commit_index=last_seq + 3,
        last_seq=last_seq,
        commit_seq=last_seq - 1,
        membership_index=1,
        voters=VOTERS,
    )
    return replace(found, **changes)


def situation(*copies: CopyFacts, **changes: Any) -> Situation:
    contact = {one.node for one in copies} | {"d"}
    found = Situation("ORDERS", GROUP, "file", VOTERS, None, contact, copies)
    return replace(found, **changes)


def refusal(found: Situation, node: str = "a", accepted_seq: int = 0) -> str:
    with pytest.raises(ApiError) as refused:
        judge(found, node, accepted_seq)
    assert refused.value.err_code == 19006
    return refused.value.description


def test_lineages_are_told_apart_by_the_name_of_the_group() -> None:
    odd = "S.$G.na~7me.0a1b"
    assert [lineage_of(GROUP), lineage_of(odd), lineage_of(next_lineage(next_lineage(odd)))] == [0, 0, 2]
    assert is_same_stream(odd, next_lineage(odd))
    assert not is_same_stream(GROUP, odd)
    assert has_later(GROUP, [next_lineage(GROUP)])
    assert not has_later(next_lineage(GROUP), [GROUP, next_lineage(GROUP), next_lineage(odd)])


def test_the_copy_that_is_left_is_taken_and_what_may_be_lost_is_said() -> None:
    found = judge(situation(copy("a")), "a", 10)
    assert (found.copy.node, found.group) == ("a", f"{GROUP}~1")
    assert "ends at sequence 10 and is known to be committed up to 9" in found.may_lose
    assert found.may_lose.endswith("accept messages until they learn of it: b, c")


def test_a_copy_in_contact_that_has_more_is_named() -> None:
    two = situation(copy("a"), copy("b", 14, is_doubtful=True), copy("d", 12, voters=()))
    assert (
        "b has messages up to 14, d has messages up to 12, which go to a file there"
        in judge(two, "a", 1).may_lose
    )


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (situation(copy("a", leader="b@2")), "it has a leader, b@2"),
        (situation(copy("a"), copy("b")), "a majority of its voters is in contact (a, b)"),
        (situation(copy("a"), copy("b"), copy("c"), storage="memory"), "in memory"),
        (situation(copy("b")), "broker a is out of contact; in contact with a copy: b up to 10"),
        (situation(copy("b"), contact={"a", "b"}), "broker a has no copy; copies: b up to 10"),
        (situation(copy("a", is_lost=True)), "the copy on a lost its data"),
        (situation(copy("a", 7)), "ends at sequence 7, before the accepted 10"),
    ],
)
def test_a_refusal_says_why(found: Situation, why: str) -> None:
    assert why in refusal(found, "a", 10)


def test_a_leader_that_does_not_say_so_itself_is_none() -> None:
    assert not why_alive(situation(copy("a", leader="b@2"), copy("b", is_doubtful=True)))
    two = situation(copy("a", leader="b@2"), copy("b", leader="b@2", is_doubtful=True))
    assert "it has a leader, b@2, as" in why_alive(two)


def test_copies_that_are_not_sure_of_themselves_are_no_majority_unless_all_are_there() -> None:
    unsure = [copy(node, is_doubtful=True) for node in "abc"]
    assert judge(situation(*unsure[:2]), "a", 10).copy.node == "a"
    assert "a majority of its voters" in refusal(situation(*unsure))
    out = copy("b", is_open=False)  # Its disk took it out of the group.
    assert not why_alive(situation(copy("a"), out))


@pytest.mark.covers("SF-6")
def test_in_a_joint_membership_both_majorities_have_to_be_there() -> None:
    joint: dict[str, Any] = {
        "voters": ("d@9", "e@9", "f@9"),
        "voters_outgoing": VOTERS,
        "membership_index": 9,
    }
    old = [copy("a", **joint), copy("b", **joint)]
    new = [copy("d", **joint), copy("e", **joint)]
    assert not why_alive(situation(*old))
    assert not why_alive(situation(*new))
    assert not why_alive(situation(*old, new[0]))
    assert "(a, b, d, e)" in why_alive(situation(*old, *new))


def test_the_newest_membership_counts() -> None:
    moved: dict[str, Any] = {"voters": ("a@1", "d@9", "e@9"), "membership_index": 40}
    assert not why_alive(situation(copy("a", **moved), copy("b"), copy("c")))


@pytest.mark.covers("SF-9")
def test_a_recovery_under_way_is_not_overtaken_while_its_broker_is_there() -> None:
    pending = Recovery("one", "a@1.t", GROUP, 0, 10, 9, 13, "")
    group = next_lineage(GROUP)
    found = situation(copy("a"), copy("b"), group=group, recovery=pending, members=("a@1.t",))
    assert "its recovery one on a is under way" in refusal(found, "b")
    gone = situation(copy("b"), group=group, recovery=pending, members=("a@1.t",))
    verdict = judge(gone, "b", 10)
    assert verdict.group == f"{GROUP}~2"
    assert "the copy is of lineage 0: the messages that lineage 1 confirmed are lost" in verdict.may_lose
    lost = situation(copy("a", is_lost=True), copy("b"), group=group, recovery=pending, members=("a@1.t",))
    assert judge(lost, "b", 10).copy.node == "b"


@pytest.mark.covers("RP-8")
def test_a_broker_that_is_there_and_does_not_begin_stands_in_nobodys_way_for_long() -> None:
    pending = Recovery("one", "a@1.t", GROUP, 0, 10, 9, 13, "", at_ns=7)
    same: dict[str, Any] = {"group": next_lineage(GROUP), "recovery": pending, "members": ("a@1.t",)}
    young = situation(copy("a"), copy("b"), now_ns=6 + ADOPTED_NS_MAX, **same)
    assert "is under way" in refusal(young, "b")
    old = situation(copy("a"), copy("b"), now_ns=7 + ADOPTED_NS_MAX, **same)
    assert judge(old, "b", 10).group == f"{GROUP}~2"
    begun = copy(
        "a", group=next_lineage(GROUP), member="a@1.t", leader="a@1.t", is_open=True, voters=("a@1.t",)
    )
    assert "has a leader" in refusal(situation(begun, copy("b"), now_ns=1 << 60, **same), "b")


def test_what_is_common_to_all_lineages_never_grows() -> None:
    first = Recovery("one", "a@1.t", GROUP, 0, 10, 9, 13, "lost").after(None, 5)
    second = Recovery("two", "b@2.t", GROUP, 0, 30, 29, 33, "lost").after(first, 6)
    assert (second.common_index, second.known) == (13, ("two", "one"))
    assert Recovery.from_json(second.to_json()) == second
