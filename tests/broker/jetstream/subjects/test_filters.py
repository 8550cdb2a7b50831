"""Filters and the subject index, against models that do the same slowly."""

from __future__ import annotations

import itertools
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.subject_copies import copy_of, parts_of

from supercluster.broker.jetstream.encoding.codec import Reader, WireError
from supercluster.broker.jetstream.state import subject_index
from supercluster.broker.jetstream.state.subject_index import SubjectIndex
from supercluster.broker.jetstream.subjects.filters import (
    compile_filters,
    is_literal,
    is_subset,
    is_valid_filter,
    overlaps,
)
from supercluster.broker.jetstream.subjects.overlap import OverlapTree
from supercluster.broker.jetstream.subjects.subject_set import first_overlap, first_within

PATTERN = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).flatmap(
    lambda tokens: st.sampled_from([".".join(tokens), ".".join([*tokens, ">"]), ">"])
)
# Every subject that the patterns above can tell apart.
UNIVERSE = [".".join(tokens) for size in range(1, 5) for tokens in itertools.product("abc", repeat=size)]


@pytest.mark.parametrize("subject", ["a", "a.b", "*", "a.*.b", ">", "a.>", "a>b", "a*", "ü.b"])
def test_valid_filters(subject: str) -> None:
    assert is_valid_filter(subject)


@pytest.mark.parametrize("subject", ["", ".", "a.", ".a", "a..b", ">.a", "a.>.b", "a b", "a\tb", "x" * 2000])
def test_invalid_filters(subject: str) -> None:
    assert not is_valid_filter(subject)


def matches(pattern: str, subject: str) -> bool:
    return is_subset(subject, pattern)


def test_only_whole_tokens_are_wildcards() -> None:
    assert is_literal("a*.b>")
    assert not is_literal("a.*")
    assert not is_literal("a.>")


@given(PATTERN)
def test_a_compiled_filter_matches_what_the_pattern_means(pattern: str) -> None:
    wanted = compile_filters([pattern])
    for subject in UNIVERSE:
        assert (wanted is None or wanted(subject.encode())) == matches(pattern, subject), (pattern, subject)


@given(PATTERN, PATTERN)
def test_overlap_and_subset_mean_what_they_say(one: str, other: str) -> None:
    of_one = {subject for subject in UNIVERSE if matches(one, subject)}
    of_other = {subject for subject in UNIVERSE if matches(other, subject)}
    assert overlaps(one, other) == bool(of_one & of_other)
    assert is_subset(one, other) == (of_one <= of_other)


@given(st.lists(PATTERN, max_size=6))
def test_filters_of_which_one_takes_in_another_are_found(filters: list[str]) -> None:
    pairs = [
        (a, b) for i, a in enumerate(filters) for j, b in enumerate(filters) if i != j and is_subset(a, b)
    ]
    found = first_within(filters)
    assert (found is not None) == bool(pairs)
    assert found is None or found in pairs


def test_several_filters_and_none() -> None:
    assert compile_filters([]) is None
    assert compile_filters(["a", ">"]) is None
    both = compile_filters(["a.*", "b.>"])
    assert both is not None
    assert [both(s) for s in (b"a.x", b"a.x.y", b"b.x.y", b"b", b"ba.x")] == [True, False, True, False, False]
    plain = compile_filters(["a", "b.c"])
    assert plain is not None
    assert [plain(s) for s in (b"a", b"b.c", b"b")] == [True, True, False]
    special = compile_filters(["a+.*"])
    assert special is not None
    assert special(b"a+.x")
    assert not special(b"aa.x")


def test_the_first_two_that_overlap_are_named() -> None:
    assert first_overlap(("a.x", "b.>", "a.*")) == ("a.x", "a.*")
    assert first_overlap(("a.x", "b.>")) is None
    assert first_overlap(("a.x", "a.x")) == ("a.x", "a.x")
    assert first_overlap(("a.b.c.d", "a.>")) == ("a.b.c.d", "a.>")


# What is judged as no subject, and only afterwards, is no reason to end on.
ODD = st.lists(st.sampled_from(["a", "b", "*", ">", ""]), min_size=1, max_size=4).map(".".join)


@given(st.lists(PATTERN | ODD, max_size=6), PATTERN | ODD)
def test_a_tree_finds_what_overlaps_as_one_by_one_would(there: list[str], one: str) -> None:
    found = OverlapTree(there).overlapping(one)
    assert (found is not None) == any(overlaps(one, other) for other in there)
    assert found is None or (found in there and overlaps(one, found))


@pytest.mark.parametrize("wildcard", ["", ".*", ".>"])
def test_each_of_thousands_of_subjects_is_looked_at_by_its_tokens(wildcard: str) -> None:
    """One call with some thousand subjects would else stop a broker for seconds, and each replica after it."""
    tree = OverlapTree(f"some.{number}{wildcard}" for number in range(5_000))
    assert tree.overlapping(f"some.5000{wildcard}") is None
    assert tree.looked_at <= 4


class Model:
    """The index, slowly: every subject's sequences."""

    def __init__(self) -> None:
        self.seqs: dict[bytes, list[int]] = defaultdict(list)
        self.next = 1

    def matching(self, filters: list[str]) -> list[list[int]]:
        return [
            seqs
            for subject, seqs in self.seqs.items()
            if seqs and (not filters or any(matches(f, subject.decode()) for f in filters))
        ]


SUBJECTS = [b"a", b"a.b", b"a.c", b"b.c", b"b.c.d"]
FILTERS = [[], ["a"], ["a.*"], ["a.b", "b.c"], [">"], ["*.c", "b.c.>"]]
STEP = st.one_of(
    st.lists(st.sampled_from(SUBJECTS), min_size=1, max_size=30),
    st.tuples(st.just("remove"), st.integers(min_value=0, max_value=1000)),
    st.tuples(st.just("restore"), st.just(0)),
)


def agrees(index: SubjectIndex, model: Model, limit: int) -> None:
    for subject in SUBJECTS:
        seqs = model.seqs[subject]
        assert index.count(subject) == len(seqs)
        assert index.first_seq_hint(subject) <= (seqs[0] if seqs else 0)
        assert (index.first_seq_hint(subject) > 0) == bool(seqs)
        if index.last_is_exact(subject):
            assert index.last_seq(subject) == (seqs[-1] if seqs else 0)
        else:
            assert index.last_seq(subject) > seqs[-1]
    if limit:
        assert index.over(limit) == sorted(s for s, seqs in model.seqs.items() if len(seqs) > limit)
    for filters in FILTERS:
        found = model.matching(filters)
        assert index.total(*filters) == sum(map(len, found))
        for from_seq in (1, model.next // 2, model.next):
            behind = [seq for seqs in found for seq in seqs if seq >= from_seq]
            hint = index.next_matching(filters, from_seq)
            if behind:
                assert hint is not None
                assert from_seq <= hint <= min(behind)
            total, exact = index.pending_bounds(filters, from_seq - 1)
            assert total >= len(behind)
            if exact:
                assert total == len(behind)


@given(st.lists(STEP, max_size=25), st.sampled_from([0, 2, 1000]))
def test_the_index_agrees_with_its_model(steps: list[list[bytes] | tuple[str, int]], limit: int) -> None:
    index, model = SubjectIndex(), Model()
    for step in steps:
        if isinstance(step, list):
            index.add_many(step, model.next)
            for subject in step:
                model.seqs[subject].append(model.next)
                model.next += 1
        elif step[0] == "remove":
            held = sorted((seq, subject) for subject, seqs in model.seqs.items() for seq in seqs)
            if held:
                seq, subject = held[step[1] % len(held)]
                index.remove(subject, seq)
                model.seqs[subject].remove(seq)
        else:
            before = parts_of(index)
            index = copy_of(index)
            assert parts_of(index) == before
        agrees(index, model, limit)


def test_adding_many_at_once_is_adding_one_by_one() -> None:
    subjects = [b"a", b"b", b"a", b"c"] * 10
    together, singly = SubjectIndex(), SubjectIndex()
    together.add_many(subjects, 5)
    for seq, subject in enumerate(subjects, 5):
        singly.add(subject, seq)
    assert parts_of(together) == parts_of(singly)
    assert together.subjects("*") == {"a": 20, "b": 10, "c": 10}
    assert together.last_for_filters("a", "b") == 43
    assert sorted(row[3] for rows in together.slices(["*"]) for row in rows) == [42, 43, 44]


def test_an_exact_bound_that_somebody_found_is_kept() -> None:
    index = SubjectIndex()
    index.add_many([b"a", b"b", b"b", b"b", b"a", b"a"], 1)
    index.remove(b"a", 1)
    assert index.first_seq_hint(b"a") == 2
    index.fix_first(b"a", 5)
    assert index.first_seq_hint(b"a") == 5
    index.remove(b"a", 6)
    assert not index.last_is_exact(b"a")
    index.fix_last(b"a", 5)
    assert index.last_is_exact(b"a")
    assert (index.last_seq(b"a"), index.first_seq_hint(b"a")) == (5, 5)


def test_under_a_small_limit_per_subject_the_oldest_message_is_known_without_a_scan() -> None:
    index = SubjectIndex()
    assert index.over(2) == []
    held: dict[bytes, list[int]] = defaultdict(list)
    for seq in range(1, 301):
        subject = b"key.%d" % (seq * 7 % 40)
        index.add(subject, seq)
        held[subject].append(seq)
        if seq == 150:
            index = copy_of(index)
        for crowded in index.over(2):
            oldest = index.first_seq_hint(crowded)
            assert oldest == held[crowded].pop(0)
            index.remove(crowded, oldest)
    assert index.over(2) == []
    assert {s: index.count(s) for s in held} == dict.fromkeys(held, 2)
    index.remove(b"key.7", held[b"key.7"][1])
    assert index.last_is_exact(b"key.7")
    assert index.last_seq(b"key.7") == held[b"key.7"][0]


def test_subjects_over_a_limit_are_found_without_looking_at_all_of_them_again() -> None:
    index = SubjectIndex()
    index.add_many([b"a", b"a", b"b"], 1)
    assert index.over(1) == [b"a"]
    index.remove(b"a", 1)
    assert index.over(1) == []
    index.add(b"b", 4)
    assert index.over(1) == [b"b"]
    assert index.over(5) == []
    assert index.over(-1) == []


@pytest.mark.parametrize("cut", [1, 3, 10, 30])
def test_a_part_of_a_snapshot_that_is_cut_off_is_refused(cut: int) -> None:
    index = SubjectIndex()
    index.add_many([b"subject.a", b"subject.b"], 1)
    (part,) = parts_of(index)
    with pytest.raises(WireError):
        SubjectIndex().take(Reader(part[:-cut]))
    again = SubjectIndex()
    again.take(Reader(part))
    with pytest.raises(WireError, match="twice"):
        again.take(Reader(part))


CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "add", "remove", "first", "last", "limit"]), st.integers(0, 7)),
    max_size=60,
)


@pytest.mark.covers("SF-13", "SF-29")
@given(st.sampled_from([0, 1, 3, 300]), CHANGES, CHANGES, st.integers(1, 4))
def test_a_view_shows_what_was_there_whatever_happens_while_it_is_read(
    limit: int, before: list[tuple[str, int]], after: list[tuple[str, int]], rows: int
) -> None:
    index, held = SubjectIndex(), defaultdict[bytes, list[int]](list)
    index.over(limit)
    seq = 0

    def change(what: str, number: int) -> None:
        nonlocal seq
        subject = b"s%d" % number
        if what == "add":
            index.add_many([subject, b"s0"], seq + 1)
            held[subject].append(seq + 1)
            held[b"s0"].append(seq + 2)
            seq += 2
        elif what == "limit":
            index.over(number)
        elif held[subject]:
            gone = held[subject].pop(0 if what != "last" else -1)
            index.remove(subject, gone)
            if held[subject] and not index.last_is_exact(subject):
                index.fix_last(subject, held[subject][-1])
            if held[subject] and what == "first":
                index.fix_first(subject, held[subject][0])

    for step in before:
        change(*step)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject_index, "PART_ROWS", rows)
        expected, other = parts_of(index), index.view()
        view = index.view()
        left, found = list(after), list[bytes]()
        for part in view.parts():
            found.append(part)
            for step in left[: len(after) // 4 + 1]:
                change(*step)
            del left[: len(after) // 4 + 1]
        view.close()
        for step in left:
            change(*step)
        assert found == expected == list(other.parts())
        other.close()
    assert index._views == []
