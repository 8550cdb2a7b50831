"""May the map of streams be recovered by force, from which copy, and what is said of it (RP-8, SF-9)? Names of lineages, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supercluster.broker.jetstream.admin.map_recovery import read_call
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.sections import Section, section
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.map_recovery import (
    LINEAGE_ENTRIES,
    MapRecovery,
    MapSituation,
    first_index,
    judge_map,
)
from supercluster.broker.jetstream.meta.operations import confirm_stream, put_stream
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts
from supercluster.broker.jetstream.replica.lineage import (
    META_LINEAGES_MAX,
    follows,
    is_meta,
    is_same_stream,
    lineage_of,
    next_lineage,
    next_meta,
)
from supercluster.broker.raft.entry import EntryKind, make_entry

VOTERS = ("a@1", "b@1", "c@1")


def copy(node: str = "a", **more: Any) -> CopyFacts:
    fields: dict[str, Any] = {
        "is_open": True,
        "last_term": 2,
        "last_index": 20,
        "commit_index": 18,
        "voters": VOTERS,
        "membership_index": 1,
    }
    return CopyFacts(node, more.pop("group", "meta"), f"{node}@1", **{**fields, **more})


def situation(*copies: CopyFacts, **more: Any) -> MapSituation:
    contact = {found.node for found in copies}
    return MapSituation("a", "meta", frozenset(contact), copies, **more)


def refusal(found: MapSituation, accepted: int = 0, *, accepts_doubt: bool = False) -> str:
    with pytest.raises(ApiError) as refused:
        judge_map(found, accepted, accepts_doubt=accepts_doubt)
    assert refused.value.err_code == 19006
    return refused.value.description


@pytest.mark.covers("RP-8")
def test_what_is_left_of_three_may_be_chosen_and_it_is_said_what_may_be_lost() -> None:
    found, may_lose = judge_map(situation(copy(), copy("d", last_index=25)), 20, accepts_doubt=False)
    assert found.node == "a"
    for words in (
        "committed up to 18",
        "d has entries up to 25",
        "go on deciding until they learn of it: b, c",
    ):
        assert words in may_lose


@pytest.mark.covers("RP-8")
def test_why_not() -> None:
    assert "a majority of its voters is in contact (a, b)" in refusal(situation(copy(), copy("b")))
    assert "it has a leader, a@1" in refusal(situation(copy(leader="a@1")))
    assert "ends at entry 20, before the accepted 21" in refusal(situation(copy()), 21)
    assert "lost its data" in refusal(situation(copy(is_lost=True)))
    assert "lost its data or has none so far" in refusal(situation(copy(last_index=0)))
    assert "b, in contact, did not say" in refusal(situation(copy(), silent=("b",)))
    assert "broker d has been asked to recover it at this moment (x)" in refusal(
        situation(copy(), about_to={"d": "x"})
    )
    doubtful = situation(copy(is_doubtful=True))
    assert "acceptDoubtful" in refusal(doubtful)
    _, may_lose = judge_map(doubtful, 0, accepts_doubt=True)
    assert "power failure" in may_lose
    often = "meta" + "~1" * META_LINEAGES_MAX
    assert "no further one has a name" in refusal(replace(situation(copy()), group=often))


@pytest.mark.covers("SF-9")
def test_one_that_begins_empty_goes_on_from_the_copy_of_before_and_never_from_a_rivals() -> None:
    empty = copy(group="meta~1f", last_index=0, commit_index=0, voters=())
    older = copy(is_open=False)
    rival = copy(group="meta~2e", last_index=90)
    found, may_lose = judge_map(
        MapSituation("a", "meta~1f", {"a"}, (empty, older, rival)), 0, accepts_doubt=False
    )
    assert found is older
    assert "the decisions of lineage meta~1f since then are lost" in may_lose


@pytest.mark.covers("SF-9")
def test_a_lineage_is_a_path_and_what_does_not_lead_to_it_is_none_of_its() -> None:
    one = next_meta("meta", "1f")
    two, other = next_meta(one, "77"), next_meta("meta", "2e")
    assert (one, two) == ("meta~1f", "meta~1f~77")
    assert follows(two, one)
    assert follows(two, "meta")
    assert not follows(one, two)
    assert not follows(two, other)
    assert not follows("meta~1f7", one), "a longer token is another one"
    assert [lineage_of(name) for name in ("meta", one, two)] == [0, 1, 2]
    assert lineage_of("meta~123") == 1
    assert is_meta(two)
    assert not is_meta("S.$G.meta~1.77")
    assert first_index(one, 20) == LINEAGE_ENTRIES
    assert first_index(two, 20) == 2 * LINEAGE_ENTRIES, (
        "a copy of before does not begin where its successor did"
    )
    assert first_index(two, 2 * LINEAGE_ENTRIES - 1) == 2 * LINEAGE_ENTRIES


@pytest.mark.covers("SF-9")
def test_a_streams_lineage_has_a_token_in_a_recovered_map() -> None:
    group = "S.$G.a~1-b.77"
    assert lineage_of(group) == 0, "a stream may be called like that"
    assert next_lineage(group) == f"{group}~1"
    named = next_lineage(f"{group}~1", "2e")
    assert named == f"{group}~2-2e"
    assert lineage_of(named) == 2
    assert is_same_stream(named, group)
    assert next_lineage(named) == f"{group}~3"


@pytest.mark.covers("SF-5", "SF-9")
def test_streams_of_a_recovered_map_are_unconfirmed_until_their_groups_have_spoken() -> None:
    config = read_stream({"name": "S", "subjects": ["s"], "num_replicas": 3})
    state = MetaState()

    def apply(index: int, body: bytes) -> None:
        payload = b"".join(section(Section.META, [body]))
        state.apply(make_entry(index=index, term=1, kind=EntryKind.BATCH, time_ns=index, payload=payload))

    apply(1, put_stream("$G", "S", "S.$G.S.77", config, VOTERS))
    before = state.snapshot()
    assert b"recovery" not in before, "nothing of it is there before the first recovery"
    recovery = MapRecovery("act", "meta~1f", "a@1.1f", "meta", 1, 1, 1, 3, "the end", 7, ("older",))
    state.recovered(recovery, LINEAGE_ENTRIES)
    state = MetaState.restore(state.snapshot())
    assert state.recovery == recovery
    assert state.recovery.known == ("act", "older")
    assert state.unconfirmed == {("$G", "S")}
    found = state.streams["$G", "S"]
    assert found.is_unconfirmed
    assert found.has_begun_before
    newer = replace(config, description="newer")
    apply(LINEAGE_ENTRIES + 1, confirm_stream(found, ("d@1", "e@1", "f@1"), newer))
    state = MetaState.restore(state.snapshot())
    found = state.streams["$G", "S"]
    assert (found.members, found.config.description) == (("d@1", "e@1", "f@1"), "newer")
    assert found.version == LINEAGE_ENTRIES + 1
    assert not state.unconfirmed
    assert found.has_begun_before, "nobody knows who has dropped it since"
    apply(LINEAGE_ENTRIES + 2, confirm_stream(found, VOTERS, None))
    assert state.streams["$G", "S"].members == ("d@1", "e@1", "f@1"), "it is said once"


@pytest.mark.covers("RP-8")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (None, "has to be an object"),
        ({"node": "a", "sequence": 1}, "has to be an object"),
        ({"node": "b", "acceptLastIndex": 1, "id": "x"}, "ask the broker itself"),
        ({"node": "a", "acceptLastIndex": True, "id": "x"}, "acceptLastIndex is True"),
        ({"node": "a", "acceptLastIndex": -1, "id": "x"}, "acceptLastIndex is -1"),
        ({"node": "a", "acceptLastIndex": 1}, "id is None"),
        ({"node": "a", "acceptLastIndex": 1, "id": "x", "dryRun": 1}, "dryRun is 1"),
        ({"node": "a", "follow": "S.$G.x"}, "follow is"),
    ],
)
def test_a_wrong_call_is_named(body: Any, words: str) -> None:
    with pytest.raises(ApiError, match=words.replace("$", r"\$")) as refused:
        read_call(body, "a")
    assert refused.value.err_code == 10052
