"""Tables: plain where a program may read them, no wider than the terminal where a person does."""

from __future__ import annotations

import sys

import pytest

from supercluster.app.commands.tables import columns

LONG = "x" * 300
ROWS = [("NAME", "NOTE"), ("a", LONG), ("b", "[red]:smile: \u00e9 \u65e5\u672c")]


def test_what_is_no_terminal_gets_plain_lines_that_are_neither_folded_nor_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert columns(ROWS).splitlines() == ["NAME  NOTE", f"a     {LONG}", f"b     {ROWS[2][1]}"]


def test_a_terminal_gets_lines_as_wide_as_it_is_and_every_character(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    header, *rows = columns(ROWS).splitlines()
    assert "\x1b[1m" in header, "in bold"
    assert max(map(len, rows)) <= 80
    assert sum(row.count("x") for row in rows) == len(LONG)


def test_lines_without_a_header_keep_their_indentation() -> None:
    assert columns([("  west-0", "is not ready")], has_header=False) == "  west-0  is not ready"
