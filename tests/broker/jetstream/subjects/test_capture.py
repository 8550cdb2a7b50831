"""The tree of patterns finds what a search through all patterns would."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.subjects.capture import CaptureMap
from supercluster.broker.protocol.subjects import matches

pytestmark = pytest.mark.covers("RP-3", "SF-14")

TOKENS = st.sampled_from(["a", "b", "c", "*"])
PATTERNS = st.builds(
    lambda tokens, rest: ".".join([*tokens, ">"] if rest or not tokens else tokens),
    st.lists(TOKENS, max_size=4),
    st.booleans(),
)
SUBJECTS = st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=5).map(".".join)


@given(st.lists(PATTERNS, max_size=12), st.lists(SUBJECTS, min_size=1, max_size=20))
def test_it_agrees_with_a_search_through_all(patterns: list[str], subjects: list[str]) -> None:
    found = CaptureMap()
    for pattern in patterns:
        found.add(pattern.encode(), pattern)
    for subject in subjects:
        raw = subject.encode()
        assert found.find(raw) == next((p for p in patterns if matches(raw, p.encode())), "")


@pytest.mark.parametrize(
    ("pattern", "may"), [("orders.>", False), (">", True), ("*.x", True), ("_INBOX.>", True), ("a.*", False)]
)
def test_it_knows_whether_reply_subjects_could_be_captured(pattern: str, may: bool) -> None:
    found = CaptureMap()
    found.add(b"plain", "g")
    found.add(pattern.encode(), "h")
    assert found.matches_inboxes is may


def test_a_dead_end_does_not_hide_a_wider_pattern() -> None:
    found = CaptureMap()
    found.add(b"a.b.c", "literal")
    found.add(b"a.*.d", "star")
    found.add(b"a.b.x.>", "rest")
    assert [found.find(s) for s in (b"a.b.c", b"a.b.d", b"a.b.x", b"a.b.x.y", b"a", b"a.b.c.d")] == [
        "literal",
        "star",
        "",
        "rest",
        "",
        "",
    ]
