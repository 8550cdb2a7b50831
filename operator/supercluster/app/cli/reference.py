"""The reference of the command line as Markdown, made of the commands themselves: `python -m supercluster.app.cli.reference`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from supercluster.app.cli.options import option
from supercluster.app.cli.program import EXIT_CODES, app

HEAD = """\
# Command line

`supercluster` and the plugin `kubectl supercluster` have the same commands. This page is made by
`python -m supercluster.app.cli.reference`.
"""


def text() -> str:
    """The page: exit codes, then each command in the order of names."""
    codes = _table(("exit code", "meaning"), [(str(code), meaning) for code, meaning in EXIT_CODES.items()])
    return "\n".join((HEAD, *codes, *_command(get_command(app), None, "supercluster"))) + "\n"


def _command(command: Any, parent: Any, name: str) -> Iterator[str]:
    context = typer.Context(command, info_name=name, parent=parent)
    yield f"\n## {context.command_path}\n"
    yield command.help
    is_group = isinstance(command, TyperGroup)
    if not is_group:
        yield f"\n```text\n{context.get_usage().removeprefix('Usage: ')}\n```"
    for kind in ("argument", "option"):
        found = [each for each in command.params if each.param_type_name == kind]
        records = filter(None, (each.get_help_record(context) for each in found))
        if rows := [(f"`{shown}`", told.replace("  [", " [")) for shown, told in records]:
            yield ""
            yield from _table((kind, "meaning"), rows)
    if is_group:
        for other in sorted(command.commands):
            yield from _command(command.commands[other], context, other)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for row in (header, ["---"] * len(header), *rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


def print_or_write(
    check: Annotated[Path | None, option("FILE", "Fail unless this file is the page.")] = None,
    write: Annotated[Path | None, option("FILE", "Write the page there.")] = None,
) -> None:
    """Print the reference of the command line as Markdown."""
    page = text()
    if write is not None:
        write.write_text(page, encoding="utf-8")
    elif check is None:
        print(page, end="")
    elif not check.is_file() or check.read_text(encoding="utf-8") != page:
        print(f"{check} is out of date; --write {check} makes it anew", file=sys.stderr)
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(print_or_write)
