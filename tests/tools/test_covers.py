"""What the documents claim has tests that name it."""

from __future__ import annotations

from tools.covers import claimed, named


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
