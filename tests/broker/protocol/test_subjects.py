"""Subjects and the subscription trie, compared with the plain definition of a match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.protocol import subjects
from supercluster.broker.protocol.sublist import Sublist

words = st.sampled_from(["a", "b", "_INBOX", "x"])
literals = st.lists(words, min_size=1, max_size=4).map(lambda found: ".".join(found).encode())


@st.composite
def patterns(draw: st.DrawFn) -> bytes:
    found = draw(st.lists(st.one_of(words, st.just("*")), min_size=1, max_size=4))
    if draw(st.booleans()):
        found[-1] = ">"
    return ".".join(found).encode()


def reference(subject: bytes, pattern: bytes) -> bool:
    """The definition, token by token."""
    want, have = pattern.split(b"."), subject.split(b".")
    for index, token in enumerate(want):
        if token == b">":
            return len(have) > index
        if index >= len(have) or token not in (b"*", have[index]):
            return False
    return len(want) == len(have)


@given(literals, patterns())
def test_matching_is_what_the_definition_says(subject: bytes, pattern: bytes) -> None:
    assert subjects.matches(subject, pattern) == reference(subject, pattern)


@given(patterns(), patterns(), st.lists(literals, max_size=20))
def test_overlap_and_subset_agree_with_matching(one: bytes, other: bytes, probes: list[bytes]) -> None:
    for probe in probes:
        if reference(probe, one) and reference(probe, other):
            assert subjects.overlap(one, other)
        if subjects.is_subset(one, other) and reference(probe, one):
            assert reference(probe, other)


@pytest.mark.parametrize("subject", [b"a", b"a.b", b"a.*", b"a.>", b">", b"*", b"a*.b", b"$JS.API.INFO"])
def test_valid_filters(subject: bytes) -> None:
    assert subjects.is_valid_filter(subject)


@pytest.mark.parametrize("subject", [b"", b".", b"a.", b".a", b"a..b", b"a.>.b", b"a b", b"a\tb", b"a\x00"])
def test_invalid_filters(subject: bytes) -> None:
    assert not subjects.is_valid_filter(subject)


@pytest.mark.parametrize(
    ("subject", "valid"), [(b"a.*", False), (b">", False), (b"a*.b>c", True), (b"a.b", True)]
)
def test_literals_have_no_wildcards(subject: bytes, valid: bool) -> None:
    assert subjects.is_valid_literal(subject) is valid


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), patterns(), st.sampled_from([b"", b"", b"q1", b"q2"])),
        st.tuples(st.just("remove"), st.integers(0, 50), st.just(b"")),
        st.tuples(st.just("remote"), patterns(), st.sampled_from([b"", b"q1"])),
        st.tuples(st.just("gone"), st.integers(0, 50), st.just(b"")),
        st.tuples(st.just("match"), literals, st.just(b"")),
    ),
    max_size=40,
)


@given(steps)
def test_the_trie_and_its_caches_always_say_what_a_list_would(found: list[tuple[str, object, bytes]]) -> None:
    trie: Sublist[int] = Sublist()
    local: list[tuple[int, bytes, bytes]] = []
    remote: dict[tuple[bytes, bytes], int] = {}
    for number, (what, argument, queue) in enumerate(found):
        if what == "add" and isinstance(argument, bytes):
            trie.insert(argument, queue, number)
            local.append((number, argument, queue))
        elif what == "remove" and isinstance(argument, int) and local:
            chosen, subject, queue = local.pop(argument % len(local))
            trie.remove(subject, queue, chosen)
        elif what == "remote" and isinstance(argument, bytes):
            trie.set_remote("east-1", argument, queue, number + 1)
            remote[argument, queue] = number + 1
        elif what == "gone" and isinstance(argument, int) and remote:
            subject, queue = list(remote)[argument % len(remote)]
            del remote[subject, queue]
            trie.set_remote("east-1", subject, queue, 0)
        elif isinstance(argument, bytes):
            _compare(trie, argument, local, remote)
    for probe in (b"a", b"a.b", b"_INBOX.a.b", b"_INBOX.a.x", b"_INBOX.a", b"x.a.b.a"):
        _compare(trie, probe, local, remote)
    assert trie.local_count == len(local)


def _compare(
    trie: Sublist[int],
    subject: bytes,
    local: list[tuple[int, bytes, bytes]],
    remote: dict[tuple[bytes, bytes], int],
) -> None:
    match = trie.match(subject)
    assert sorted(match.plain) == sorted(
        n for n, pattern, queue in local if not queue and reference(subject, pattern)
    )
    groups: dict[bytes, list[int]] = {}
    for number, pattern, queue in local:
        if queue and reference(subject, pattern):
            groups.setdefault(queue, []).append(number)
    assert {group.name: sorted(group.local) for group in match.groups if group.local} == groups
    weights: dict[bytes, int] = {}
    for (pattern, queue), count in remote.items():
        if queue and reference(subject, pattern):
            weights[queue] = weights.get(queue, 0) + count
    assert {group.name: group.remote["east-1"] for group in match.groups if group.remote} == weights
    plain_remote = any(not queue and reference(subject, pattern) for pattern, queue in remote)
    assert match.nodes == (["east-1"] if plain_remote else [])
    assert match.anyone == bool(match.plain or match.groups or match.nodes)


def test_unique_inbox_subjects_share_one_result() -> None:
    trie: Sublist[int] = Sublist()
    trie.insert(b"_INBOX.client.*", b"", 1)
    first = trie.match(b"_INBOX.client.1")
    assert first is trie.match(b"_INBOX.client.2")
    assert not trie.cache, "replies take no room in the cache of subjects"
    trie.insert(b"_INBOX.client.2", b"", 2)
    assert sorted(trie.match(b"_INBOX.client.2").plain) == [1, 2]
    assert trie.match(b"_INBOX.client.1").plain == [1]


def test_an_emptied_trie_keeps_nothing() -> None:
    trie: Sublist[int] = Sublist()
    for pattern in (b"a.b.c", b"a.*.c", b"a.>"):
        trie.insert(pattern, b"q", 1)
    for pattern in (b"a.b.c", b"a.*.c", b"a.>"):
        trie.remove(pattern, b"q", 1)
    assert not trie.first_token_is_wanted(b"a")


@pytest.mark.covers("CL-2", "CL-6")
def test_members_of_other_clusters_count_only_where_the_own_one_has_none() -> None:
    far: set[str] = set()
    trie: Sublist[int] = Sublist(far)
    far.add("west-0")
    for node in ("east-1", "west-0"):
        trie.set_remote(node, b"work.*", b"crew", 2)
        trie.set_remote(node, b"work.*", b"", 1)
    trie.set_remote("west-0", b"work.>", b"others", 3)
    match = trie.match(b"work.x")
    assert {group.name: group.remote for group in match.groups} == {
        b"crew": {"east-1": 2},
        b"others": {"west-0": 3},
    }
    assert match.nodes == ["east-1", "west-0"], "plain subscribers get it wherever they are"
    trie.set_remote("east-1", b"work.*", b"crew", 0)
    groups = {group.name: group.remote for group in trie.match(b"work.x").groups}
    assert groups[b"crew"] == {"west-0": 2}
