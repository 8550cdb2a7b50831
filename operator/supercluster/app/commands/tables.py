"""Output for people: as wide as the terminal, elsewhere plain and never folded, since a program may read it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console, RenderableType
from rich.table import Table

WIDTH_MAX = 100_000
"""Of what is no terminal: nothing is folded there."""


def console() -> Console:
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else WIDTH_MAX
    return Console(force_terminal=is_terminal, width=width, markup=False, highlight=False, emoji=False)


def rendered(what: RenderableType) -> str:
    screen = console()
    with screen.capture() as captured:
        screen.print(what)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def columns(lines: Sequence[Sequence[str]], *, has_header: bool = True) -> str:
    """Lines of cells, every column as wide as its widest cell."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=has_header)
    for column in lines[0]:
        table.add_column(column, overflow="fold", no_wrap=column != lines[0][-1])
    for row in lines[has_header:]:
        table.add_row(*row)
    return rendered(table)
