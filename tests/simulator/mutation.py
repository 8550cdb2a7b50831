"""What a mutant is: a safety rule taken out of the code, as exact replacements of text.

An old text that is not found exactly once is an error, so that a list of mutants cannot rot: whoever changes the code
that a mutant stands on is told to look at it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "broker_image" / "supercluster" / "broker"


class MutantError(ValueError):
    """A mutant does not fit the code any more."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One replacement; the file is named from the broker's package."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault that somebody could build in, and the rule that forbids it."""

    id: str
    rule: str
    why: str
    """What the mutant does, in a sentence."""
    edits: tuple[Edit, ...]
    moves: bool = False
    """Is it to be looked for in super-clusters whose stream moves?"""
    recovers: str = ""
    """Is it to be looked for where a "stream" or the "map" is recovered by force, where "copies" are exchanged or "volumes" put back, or in a
    "cutover"?"""


def mutant(id_: str, rule: str, why: str, *edits: tuple[str, str, str]) -> Mutant:
    """A table's row: `edits` are (file, old text, new text)."""
    return Mutant(id_, rule, why, tuple(Edit(*edit) for edit in edits))


def mutated(source: str, edit: Edit) -> str:
    """The text with one replacement.

    Raises:
        MutantError: the old text is not there exactly once.
    """
    found = source.count(edit.old)
    if found != 1:
        raise MutantError(
            f"{edit.file}: the text to replace stands there {found} times, not once:\n{edit.old}"
        )
    return source.replace(edit.old, edit.new)


def check(mutant_: Mutant) -> None:
    """Do all replacements fit, and is what comes out still Python?"""
    texts: dict[str, str] = {}
    for edit in mutant_.edits:
        text = texts.get(edit.file) or (SOURCE / edit.file).read_text()
        texts[edit.file] = mutated(text, edit)
    for file, text in texts.items():
        compile(text, file, "exec")


def write_mutated(mutant_: Mutant, root: Path) -> None:
    """A copy of the broker's package under `root`, with the mutant in it."""
    package = root / "supercluster" / "broker"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in mutant_.edits:
        file = package / edit.file
        file.write_text(mutated(file.read_text(), edit))
