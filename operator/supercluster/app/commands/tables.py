"""Tables as text. On a terminal they have its width, elsewhere the width of their content, since a program
may read them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

WIDTH_MAX = 100_000
"""Of what is no terminal: nothing is folded there."""


def columns(lines: Sequence[Sequence[str]], *, has_header: bool = True) -> str:
    """Lines of cells, every column as wide as its widest cell."""
    is_terminal = sys.stdout.isatty()
    width = None if is_terminal else WIDTH_MAX
    console = Console(force_terminal=is_terminal, width=width, markup=False, highlight=False, emoji=False)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=has_header)
    for column in lines[0]:
        table.add_column(column, overflow="fold", no_wrap=column != lines[0][-1])
    for row in lines[has_header:]:
        table.add_row(*row)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())
