"""ARCHITECTURE.md stays short, and everything that it names exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINES_MAX = 150
PAGE = ROOT / "ARCHITECTURE.md"
# What the page abbreviates: a path that begins with one of these lies below the folder.
ABOVE = (
    "",
    "crds/supercluster/",
    "operator/supercluster/",
    "operator/supercluster/localplane/",
    "reconcilers/supercluster/",
    "reconcilers/supercluster/reconcilers/",
    "broker_image/supercluster/",
    "broker_image/supercluster/broker/",
    "broker_image/supercluster/broker/jetstream/",
    "spark/supercluster/spark/",
    "e2e/",
    "tests/",
)
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./…*-]+(?:/|\.(?:py|md|txt|lock|yaml|toml))")
NAME = re.compile(r"[A-Z][a-z]\w*[A-Z]\w*|_?[a-z]+(?:_[a-z]+)+(?:\(\))?")


def missing(text: str, tracked: list[str], source: str) -> list[str]:
    """What the text names in backticks that is no file, folder or name of the project."""
    folders = {f"{parent}/" for name in tracked for parent in Path(name).parents}
    found = []
    for code in CODE.findall(text):
        for word in re.split(r"[\s,]+", code):
            if FILE.fullmatch(word):
                path = word.removeprefix("…/")
                places = [f"{above}{path}" for above in ABOVE]
                if "*" in path:
                    is_there = any(Path(name).match(path) for name in tracked)
                elif "/" in path:
                    is_there = any(place in folders or place in tracked for place in places)
                else:
                    is_there = any(Path(name).name == path for name in tracked)
            elif NAME.fullmatch(word):
                is_there = re.search(rf"\b{re.escape(word.removesuffix('()'))}\b", source) is not None
            else:
                continue
            if not is_there:
                found.append(word)
    return found


def test_the_page_is_short_and_names_only_what_exists() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = listed.stdout.split()
    source = "\n".join(
        (ROOT / name).read_text()
        for name in tracked
        if name.endswith(".py") and not name.startswith("tests/")
    )
    text = PAGE.read_text()
    assert len(text.splitlines()) <= LINES_MAX
    assert missing(text, tracked, source) == []
    # A name that was taken away is found.
    wrong = "`net/no_such.py`, `…/broker/nowhere/`, `NoSuchClass`, `no_such_name`, `core/` and `executor.py`"
    assert missing(wrong, tracked, source) == [
        "net/no_such.py",
        "…/broker/nowhere/",
        "NoSuchClass",
        "no_such_name",
    ]
