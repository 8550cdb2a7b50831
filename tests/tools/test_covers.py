"""What the documents claim has tests that name it."""

from __future__ import annotations

import pytest
from tools.covers import ROOT, claimed, covering, held_rules, named


def test_the_documents_have_rows_and_rules() -> None:
    rows = claimed()
    assert rows["RP-1"]
    assert rows["SF-10"]
    assert rows["SF-19"]
    assert not rows["BG-7"]


def test_every_row_that_is_claimed_is_named_by_a_test_of_make_test() -> None:
    tests = named()
    assert [row for row, claims in claimed().items() if claims and row not in tests] == []


def test_no_test_names_a_row_that_does_not_exist() -> None:
    assert sorted(set(named(with_long=True)) - set(claimed())) == []


def test_the_rules_that_are_held_are_read_from_the_document_that_says_so() -> None:
    text = "Before.\n\nThis version holds: SF-1 to SF-3, SF-7 and SF-10. SF-9 comes later.\n"
    assert held_rules(text) == {"SF-1", "SF-2", "SF-3", "SF-7", "SF-10"}
    with pytest.raises(ValueError, match="This version holds"):
        held_rules("Nothing.")
    claims = claimed()
    for rule in held_rules((ROOT / "docs/safety.md").read_text()):
        assert claims[rule], rule


SOME = """
import pytest

@pytest.mark.parametrize("n", [1, pytest.param(2, marks=pytest.mark.long)])
@pytest.mark.covers("A-1", "A-2")
def test_one_case_of_it_is_long(n): ...

@pytest.mark.long
@pytest.mark.covers("A-3")
async def test_long(): ...

@pytest.mark.covers("A-4")
class TestSome:
    @pytest.mark.covers("A-5")
    def test_short(self): ...

    @pytest.mark.covers("A-6")
    @pytest.mark.long
    def test_long(self): ...

@pytest.mark.long
class TestLong:
    pytestmark = [pytest.mark.covers("A-7")]

    @pytest.mark.covers("A-8")
    def test_in_something_long(self): ...
"""


def test_a_test_that_is_long_itself_or_by_its_class_does_not_count() -> None:
    found = {id_: is_long for _, is_long, ids in covering(SOME) for id_ in ids}
    short = dict.fromkeys(("A-1", "A-2", "A-4", "A-5"), False)
    assert found == short | dict.fromkeys(("A-3", "A-6", "A-7", "A-8"), True)


@pytest.mark.parametrize(
    "marks", ["pytest.mark.long", '[pytest.mark.e2e, pytest.mark.long, pytest.mark.covers("M-1")]']
)
def test_in_a_module_that_is_marked_long_nothing_counts(marks: str) -> None:
    found = list(covering(f"{SOME}\npytestmark = {marks}\n"))
    assert len(found) >= 7
    assert all(is_long for _, is_long, _ in found)
