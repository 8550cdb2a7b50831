"""What the documents claim has tests that name it."""

from __future__ import annotations

import pytest
from tools.covers import ROOT, claimed, held_rules, named


def test_the_documents_have_rows_and_rules() -> None:
    rows = claimed()
    assert rows["RP-1"]
    assert rows["SF-10"]
    assert not rows["BG-1"]
    assert not rows["SF-19"]


def test_every_row_that_is_claimed_is_named_by_a_test() -> None:
    tests = named()
    assert [row for row, claims in claimed().items() if claims and row not in tests] == []


def test_no_test_names_a_row_that_does_not_exist() -> None:
    assert sorted(set(named()) - set(claimed())) == []


def test_the_rules_that_are_held_are_read_from_the_document_that_says_so() -> None:
    text = "Before.\n\nWhat this version holds: SF-1 to SF-3, SF-7 and SF-10. SF-9 comes later.\n"
    assert held_rules(text) == {"SF-1", "SF-2", "SF-3", "SF-7", "SF-10"}
    with pytest.raises(ValueError, match="What this version holds"):
        held_rules("Nothing.")
    claims = claimed()
    for rule in held_rules((ROOT / "docs/safety.md").read_text()):
        assert claims[rule], rule
