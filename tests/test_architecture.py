"""ARCHITECTURE.md stays short, everything that it names exists, and its floors are those of the contract."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from supercluster.broker.jetstream.links.frames import Frame

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
FILE = re.compile(r"[\w./…*-]+(?:/|\.(?:py|md|txt|lock|yaml|toml|tpl))")
NAME = re.compile(r"[A-Z][a-z]\w*[A-Z]\w*|[A-Z][A-Z_]+|(?:_[a-z]+|[a-z]+_[a-z]+)\w*(?:\(\))?")
PART = re.compile(r"[A-Za-z_][\w/-]+")
SCRIPTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
TARGETS = {"make", *re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)}
MEMBER = re.compile(r"Frame\.(\w+)")
ID = re.compile(r"\b[A-Z]{2}-\d+\b")
FLOOR = re.compile(r"^\| (\d+) \| (.*) \|$", re.MULTILINE)
PARTS = ("A kind of resource", "A frame between brokers", "A proposer")


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
            elif member := MEMBER.fullmatch(word):
                is_there = member[1] in Frame.__members__
            elif NAME.fullmatch(word):
                is_there = re.search(rf"\b{re.escape(word.removesuffix('()'))}\b", source) is not None
            else:
                found += [part for part in PART.findall(word) if not _is_part(part, folders, source)]
                continue
            if not is_there:
                found.append(word)
    return found


def _is_part(part: str, folders: set[str], source: str) -> bool:
    """Of something that is not a name alone, as a call or a command is."""
    if "/" in part:
        return any(f"{above}{part}/" in folders for above in ABOVE)
    if "-" in part:
        return part in SCRIPTS
    return part in TARGETS or re.search(rf"\b{re.escape(part)}\b", source) is not None


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
    wrong = "`net/no_such.py`, `…/broker/nowhere/`, `NoSuchClass`, `no_such_name`, `_nobody_has_this`, `NO_SUCH_MAX`, `Frame.NONE_SUCH`, `Frame.RAFT`, `core/`, `putt`, `supercluster-nobody`, `plan(a) -> Plon`, `make check`, `broker/nowhere` and `executor.py`"
    assert missing(wrong, tracked, source) == [
        "net/no_such.py",
        "…/broker/nowhere/",
        "NoSuchClass",
        "no_such_name",
        "_nobody_has_this",
        "NO_SUCH_MAX",
        "Frame.NONE_SUCH",
        "putt",
        "supercluster-nobody",
        "Plon",
        "broker/nowhere",
    ]


def test_the_ids_that_the_page_names_exist() -> None:
    text, rows = (
        PAGE.read_text(),
        "".join((ROOT / f"docs/{page}.md").read_text() for page in ("requirements", "safety")),
    )
    known = set(ID.findall(rows))
    named = set(ID.findall(text))
    assert {"RP-3", "SF-4"} <= named <= known
    assert not {"SF-999", "XX-1"} & known


def floors(text: str) -> dict[int, set[str]]:
    return {
        int(floor): set(re.findall(r"`(\w+)(?:/|\.py)`", content)) for floor, content in FLOOR.findall(text)
    }


def test_the_floors_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [c["layers"] for c in contracts if c.get("containers") == ["supercluster.broker.jetstream"]]
    wanted = {floor: set(re.findall(r"\w+", layer)) for floor, layer in enumerate(reversed(layers), 1)}
    text = PAGE.read_text()
    assert floors(text) == wanted
    assert floors(text.replace("| 14 | `core/`", "| 14 | `corn/`")) != wanted


def test_the_page_says_where_new_parts_go() -> None:
    text = PAGE.read_text().partition("## Where new parts go")[2]
    assert [part for part in PARTS if f"\n- **{part}**" not in text] == []
