"""What two name patterns have in common (MR-1)."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.reconcilers.planners.replica.undeclared import common_name

PATTERNS = st.text("ab*?", min_size=1, max_size=6)


@pytest.mark.covers("MR-1")
@pytest.mark.parametrize(
    ("one", "other", "name"),
    [
        ("ord*", "orde*", "orde"),
        ("a*", "*b", "ab"),
        ("*", "*", "x"),
        ("a?c", "ab*", "abc"),
        ("a*", "b*", ""),
        ("a", "a?", ""),
        ("a?", "?", ""),
        ("*" * 128, "?" * 128, "x" * 128),
    ],
)
def test_two_patterns_have_a_name_in_common_or_none(one: str, other: str, name: str) -> None:
    assert common_name(one, other) == name


@pytest.mark.covers("MR-1")
@given(PATTERNS, PATTERNS, st.text("abx", min_size=1, max_size=6))
def test_a_common_name_is_found_whenever_there_is_one(one: str, other: str, candidate: str) -> None:
    name = common_name(one, other)
    if name:
        assert fnmatchcase(name, one)
        assert fnmatchcase(name, other)
    if fnmatchcase(candidate, one) and fnmatchcase(candidate, other):
        assert 0 < len(name) <= len(candidate), candidate
