"""A table of stories as Markdown, for `make e2e-moves` and `make e2e-cutover`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Story(Protocol):
    """One row."""

    def cells(self) -> list[str]:
        """One text for each head."""

    @property
    def notes(self) -> Sequence[str]:
        """What is wrong with it, with examples."""


def table(heads: Sequence[str], rows: Sequence[Story]) -> str:
    """Markdown, and below it what is wrong."""
    cells = [list(heads), *(row.cells() for row in rows)]
    widths = [max(len(line[n]) for line in cells) for n in range(len(heads))]
    lines = [
        "| " + " | ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) + " |"
        for line in cells
    ]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    lines += [f"row {number}: {text}" for number, row in enumerate(rows, 1) for text in row.notes]
    return "\n".join(lines)


def in_words(heads: Sequence[str], row: Story) -> str:
    """One row, for people who watch."""
    named = dict(zip(heads, row.cells(), strict=True))
    return ", ".join(f"{name} {text}".strip() for name, text in named.items() if text not in ("-", ""))
