"""Two patterns overlap when there is a subject that both match."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.reconcilers.planners.stream.subjects import first_overlap, overlap

TOKENS = ("a", "b")
SUBJECTS = [subject for length in range(1, 5) for subject in itertools.product(TOKENS, repeat=length)]
PATTERNS = st.builds(
    lambda tokens, rest: ".".join([*tokens, *([">"] if rest or not tokens else [])]),
    st.lists(st.sampled_from([*TOKENS, "*"]), max_size=3),
    st.booleans(),
)


def matches(pattern: str, subject: tuple[str, ...]) -> bool:
    tokens = pattern.split(".")
    if tokens[-1] == ">":
        tokens = tokens[:-1]
        if len(subject) <= len(tokens):
            return False
    elif len(subject) != len(tokens):
        return False
    return all(token in ("*", there) for token, there in zip(tokens, subject, strict=False))


@given(PATTERNS, PATTERNS)
def test_as_trying_every_subject_shows(one: str, other: str) -> None:
    shared = any(matches(one, subject) and matches(other, subject) for subject in SUBJECTS)
    assert overlap(one, other) is shared


@pytest.mark.parametrize(("theirs", "pair"), [(["x", "a.>"], ("a.b", "a.>")), (["x"], None), ([], None)])
def test_the_first_pair_is_told(theirs: list[str], pair: tuple[str, str] | None) -> None:
    assert first_overlap(["q", "a.b"], theirs) == pair
