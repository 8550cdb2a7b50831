"""Which rows of docs/requirements.md and rules of docs/safety.md are named by which tests.

python -m tools.covers            every row with its tests
python -m tools.covers --missing  only rows that this version claims and no test of `make test` names; exit 1 when there are any

A test that is marked `long` does not count: only `make test-all` runs it.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_ROW = re.compile(r"^\| ([A-Z]{2}-\d+) \|.*\| (\S[^|]*) \|$", re.MULTILINE)
_RULE = re.compile(r"^- \*\*(SF-\d+)\*\*|^- \*\*(SF-\d+) ", re.MULTILINE)
_HELD = re.compile(r"^This version holds: ([^.]*)\.", re.MULTILINE)
_SPAN = re.compile(r"SF-(\d+)(?: to SF-(\d+))?")


def held_rules(safety: str) -> frozenset[str]:
    """The rules that docs/safety.md says this version holds: "This version holds: SF-1 to SF-8 and SF-23."

    Raises:
        ValueError: it has no such sentence.
    """
    sentence = _HELD.search(safety)
    if sentence is None:
        raise ValueError('docs/safety.md has no sentence "This version holds: SF-1 to SF-8 …."')
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


def named(*, with_long: bool = False) -> dict[str, list[str]]:
    """Row or rule → tests that name it in `pytest.mark.covers` and run in `make test`, or `with_long` in `make test-all`."""
    found: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("test_*.py")):
        for owner, is_long, ids in covering(file.read_text()):
            if with_long or not is_long:
                for id_ in ids:
                    found.setdefault(id_, []).append(f"{file.relative_to(ROOT)}::{owner}")
    return found


def covering(source: str) -> Iterator[tuple[str, bool, list[str]]]:
    """(test, class or "(module)", is it marked long, the ids that it covers) of everything in a test module that covers any."""
    return _covering(ast.parse(source).body, "(module)", is_long=False)


def _covering(
    body: Sequence[ast.stmt], owner: str, *, is_long: bool
) -> Iterator[tuple[str, bool, list[str]]]:
    """The marks of a module or class, then those of what is in it. What is in something long is long."""
    own = [mark for node in body for mark in _marks(_pytestmark(node))]
    is_long = is_long or any(name == "long" for name, _ in own)
    yield from ((owner, is_long, ids) for name, ids in own if name == "covers")
    for node in body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        marks = [mark for decorator in node.decorator_list for mark in _marks(decorator)]
        is_node_long = is_long or any(name == "long" for name, _ in marks)
        yield from ((node.name, is_node_long, ids) for name, ids in marks if name == "covers")
        if isinstance(node, ast.ClassDef):
            yield from _covering(node.body, node.name, is_long=is_node_long)


def _pytestmark(node: ast.stmt) -> ast.expr | None:
    """What a statement assigns to `pytestmark`, if it does."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    is_pytestmark = any(isinstance(target, ast.Name) and target.id == "pytestmark" for target in targets)
    return node.value if isinstance(node, ast.Assign) and is_pytestmark else None


def _marks(expression: ast.expr | None) -> Iterator[tuple[str, list[str]]]:
    """(name, its strings) of each `pytest.mark.name` or `pytest.mark.name(…)` that is a decorator or an item of a list of marks.

    Marks deeper down, as of one case of `parametrize`, mark only that case.
    """
    items = expression.elts if isinstance(expression, ast.List | ast.Tuple) else [expression]
    for item in items:
        mark = item.func if isinstance(item, ast.Call) else item
        if not (isinstance(mark, ast.Attribute) and ast.unparse(mark.value) == "pytest.mark"):
            continue
        arguments = item.args if isinstance(item, ast.Call) else []
        values = (
            node.value for each in arguments for node in ast.walk(each) if isinstance(node, ast.Constant)
        )
        yield mark.attr, [value for value in values if isinstance(value, str)]


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 with --missing when something is claimed and not named by a test."""
    parser = argparse.ArgumentParser(prog="python -m tools.covers", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--missing", action="store_true", help="only what is claimed and has no test in make test"
    )
    options = parser.parse_args(argv)
    tests = named()
    all_tests = named(with_long=True)
    missing = [row for row, claims in claimed().items() if claims and row not in tests]
    if options.missing:
        print("\n".join(missing) or "every row and rule that is claimed has a test in make test")
        return 1 if missing else 0
    for row, claims in claimed().items():
        print(f"{row}{'' if claims else ' (not claimed)'}")
        for test in all_tests.get(row, []):
            print(f"    {test}{'' if test in tests.get(row, []) else ' (long)'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
