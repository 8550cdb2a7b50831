"""Which rows of docs/requirements.md and rules of docs/safety.md are named by which tests.

python -m tools.covers            every row with its tests
python -m tools.covers --missing  only rows that this version claims and no test names; exit 1 when there are any
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_ROW = re.compile(r"^\| ([A-Z]{2}-\d+) \|.*\| (\S[^|]*) \|$", re.MULTILINE)
_RULE = re.compile(r"^- \*\*(SF-\d+)\*\*|^- \*\*(SF-\d+) ", re.MULTILINE)
_HELD = re.compile(r"^What this version holds: ([^.]*)\.", re.MULTILINE)
_SPAN = re.compile(r"SF-(\d+)(?: to SF-(\d+))?")


def held_rules(safety: str) -> frozenset[str]:
    """The rules that docs/safety.md says this version holds: "What this version holds: SF-1 to SF-8 and SF-23."

    Raises:
        ValueError: it has no such sentence.
    """
    sentence = _HELD.search(safety)
    if sentence is None:
        raise ValueError('docs/safety.md has no sentence "What this version holds: SF-1 to SF-8 …."')
    return frozenset(
        f"SF-{number}"
        for first, last in _SPAN.findall(sentence[1])
        for number in range(int(first), int(last or first) + 1)
    )


def claimed() -> dict[str, bool]:
    """Row or rule → does this version claim it? A row does whose cell begins with a bold yes, whatever is said behind it."""
    rows = {
        match[0]: match[1].startswith("**yes**")
        for match in _ROW.findall((ROOT / "docs/requirements.md").read_text())
    }
    safety = (ROOT / "docs/safety.md").read_text()
    held = held_rules(safety)
    return rows | {one or other: (one or other) in held for one, other in _RULE.findall(safety)}


def named() -> dict[str, list[str]]:
    """Row or rule → tests that name it in `pytest.mark.covers`."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(file.read_text())
        for owner, call in _marks(tree):
            for text in (node.value for node in ast.walk(call) if isinstance(node, ast.Constant)):
                if isinstance(text, str):
                    found.setdefault(text, []).append(f"{file.relative_to(ROOT)}::{owner}")
    return found


def _marks(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """(test or "(module)", the call of pytest.mark.covers) of a test module."""
    for node in ast.walk(tree):
        owner = (
            node.name
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            else "(module)"
        )
        places: list[ast.AST] = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            places = list(node.decorator_list)
        elif isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets
        ):
            places = [node.value]
        for place in places:
            for call in ast.walk(place):
                if (
                    isinstance(call, ast.Call)
                    and isinstance(call.func, ast.Attribute)
                    and call.func.attr == "covers"
                ):
                    yield owner, call


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 with --missing when something is claimed and not named by a test."""
    parser = argparse.ArgumentParser(prog="python -m tools.covers", description=__doc__.partition("\n")[0])
    parser.add_argument("--missing", action="store_true", help="only what is claimed and has no test")
    options = parser.parse_args(argv)
    tests = named()
    missing = [row for row, claims in claimed().items() if claims and row not in tests]
    if options.missing:
        print("\n".join(missing) or "every row and rule that is claimed has a test")
        return 1 if missing else 0
    for row, claims in claimed().items():
        print(f"{row}{'' if claims else ' (not claimed)'}")
        for test in tests.get(row, []):
            print(f"    {test}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
