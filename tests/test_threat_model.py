"""docs/threat-model.md names tests that exist, in every row."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs/threat-model.md").read_text()
POSITIONS = (
    "On the network, without credentials",
    "With a client account",
    "With a pod in the namespace",
    "With one of the Secrets",
    "As a broker of another super-cluster",
    "With an account on the laptop of the embedded plane",
)


def rows_of(section: str) -> list[list[str]]:
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_every_row_names_tests_that_exist() -> None:
    sections = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
    assert tuple(sections) == POSITIONS
    named: set[str] = set()
    for position, section in sections.items():
        rows = rows_of(section)
        assert len(rows) >= 5, position
        for attempt, outcome, tests in rows:
            assert outcome, attempt
            found = re.findall(r"`(tests/\S+\.py::test_\w+)`", tests)
            assert found, f"{attempt}: no test"
            assert len(found) == tests.count("`") // 2, f"{attempt}: {tests}"
            named |= set(found)
    missing = {name for name in named if name.partition("::")[2] not in names_in(name.partition("::")[0])}
    assert missing == set()


def names_in(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
