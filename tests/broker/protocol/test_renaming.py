"""Subjects that are called otherwise in another account, both ways, and what two patterns have in common."""

from __future__ import annotations

import itertools

import pytest

from supercluster.broker.protocol.renaming import Fixed, Renaming, RenamingError, intersection
from supercluster.broker.protocol.subjects import is_subset, matches


@pytest.mark.parametrize(
    ("there", "here", "subject", "named"),
    [
        (b"a.b", b"c", b"a.b", b"c"),
        (b"a.*", b"b.$1", b"a.x", b"b.x"),
        (b"a.*", b"b.*", b"a.x", b"b.x"),
        (b"a.*.*", b"$2.b.$1", b"a.x.y", b"y.b.x"),
        (b"a.*.>", b"p.q.a.*.>", b"a.x.y.z", b"p.q.a.x.y.z"),
        (b">", b"from.>", b"x.y", b"from.x.y"),
        (b"*.a.*.>", b"$2.>".replace(b"$2.", b"$2.$1."), b"x.a.y.1.2", b"y.x.1.2"),
    ],
)
def test_a_subject_is_named_here_and_there(there: bytes, here: bytes, subject: bytes, named: bytes) -> None:
    found = Renaming(there, here)
    assert found.inward(subject) == named
    assert found.outward(named) == subject
    assert matches(named, found.here)


def test_patterns_below_the_import_are_named_with_their_wildcards() -> None:
    found = Renaming(b"a.*.*.>", b"h.$2.$1.>")
    assert found.outward(b"h.*.x.>") == b"a.x.*.>"
    assert found.outward(b"h.y.*.*.z") == b"a.*.y.*.z"


@pytest.mark.parametrize(
    ("there", "here", "said"),
    [
        (b"a.*", b"b", "does not have each wildcard"),
        (b"a.*", b"b.$2", "names none of the 1 wildcards"),
        (b"a.*", b"b.$1.$1", "names none of the 1 wildcards"),
        (b"a.>", b"b.*", "names none of the 0 wildcards"),
        (b"a.>", b"b", "does not have each wildcard"),
        (b"a", b"b..c", "is no subject"),
    ],
)
def test_names_that_lose_something_are_refused(there: bytes, here: bytes, said: str) -> None:
    with pytest.raises(RenamingError, match=said.replace("$", r"\$")):
        Renaming(there, here)


def test_names_that_change_nothing_are_known() -> None:
    assert Renaming(b"a.*.>", b"a.$1.>").is_same
    assert not Renaming(b"a.*.*", b"a.$2.$1").is_same
    assert Fixed(b"a.b", b"x.*").outward(b"x.y") == b"a.b"


PATTERNS = [
    b"a",
    b"a.b",
    b"a.*",
    b"*.b",
    b"*.*",
    b"a.>",
    b">",
    b"*.>",
    b"a.b.c",
    b"a.*.c",
    b"a.b.>",
    b"*.*.>",
]
SUBJECTS = [
    b".".join(tokens)
    for size in (1, 2, 3, 4)
    for tokens in itertools.product((b"a", b"b", b"c"), repeat=size)
]


@pytest.mark.parametrize(("one", "other"), list(itertools.product(PATTERNS, PATTERNS)))
def test_what_two_patterns_have_in_common_is_one_pattern(one: bytes, other: bytes) -> None:
    found = intersection(one, other)
    both = {subject for subject in SUBJECTS if matches(subject, one) and matches(subject, other)}
    if found is None:
        assert not both
    else:
        assert {subject for subject in SUBJECTS if matches(subject, found)} == both
        assert is_subset(found, one)
        assert is_subset(found, other)
