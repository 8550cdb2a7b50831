"""Options and arguments that several commands have, and the values that they accept."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Any, Literal

import typer

SECONDS_MIN, SECONDS_MAX = 0.1, 86_400


def flag(name: str, help_text: str) -> Any:
    return typer.Option(f"--{name}", help=help_text)


def option(metavar: str, help_text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, metavar=metavar, help=help_text, **more)


def argument(metavar: str, help_text: str, **more: Any) -> Any:
    return typer.Argument(metavar=metavar, help=help_text, **more)


Output = Annotated[Literal["table", "json"], typer.Option("-o", "--output", help="Format of the output.")]
TextOutput = Annotated[Literal["text", "json"], typer.Option("-o", "--output", help="Format of the output.")]
DryRun = Annotated[bool, flag("dry-run", "Show what would happen; change nothing.")]
Wait = Annotated[bool, flag("wait", "Wait until the resources are Ready.")]
OfSuperCluster = Annotated[
    str, option("NAME", "Default: the only one.", "--super-cluster", show_default=False)
]


def seconds(help_text: str) -> Any:
    return option("SECONDS", help_text, "--timeout", parser=_seconds)


def number(low: int, high: int, what: str) -> Callable[[str | int], int]:
    """A parser of whole numbers within these bounds."""

    def parse(text: str | int) -> int:
        if not str(text).isdigit() or not low <= int(text) <= high:
            raise typer.BadParameter(f"{text!r} is not {what} from {low} to {high}")
        return int(text)

    return parse


def _seconds(text: str | float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not SECONDS_MIN <= value <= SECONDS_MAX:
        raise typer.BadParameter(f"{text!r} is not a number of seconds from {SECONDS_MIN} to {SECONDS_MAX}")
    return value


def size(text: str) -> str:
    from supercluster.api.units import SIZE_PATTERN, size_bytes

    if not re.fullmatch(SIZE_PATTERN, text) or size_bytes(text) == 0:
        raise typer.BadParameter(f"{text!r} is not a number of bytes such as 1000000 or 50Mi")
    return text


def period(text: str) -> str:
    from supercluster.api.units import PERIOD_PATTERN, period_s

    if not re.fullmatch(PERIOD_PATTERN, text) or period_s(text) == 0:
        raise typer.BadParameter(f"{text!r} is not a period such as 90m, 24h or 7d")
    return text


def stream_name(text: str) -> str:
    return _named(text, "a stream")


def consumer_name(text: str) -> str:
    return text and _named(text, "a consumer")


def _named(text: str, what: str) -> str:
    """As brokers allow names."""
    from supercluster.api.names import UNDECLARED_NAME_PATTERN

    if not re.fullmatch(UNDECLARED_NAME_PATTERN, text):
        raise typer.BadParameter(
            f"{text!r} is not a name of {what}: it is empty, or has a space or one of . * > / and backslash"
        )
    return text


def whole_subject(text: str) -> str:
    """A subject that a message can have."""
    from supercluster.api.names import EMPTY_TOKEN, WHITE_SPACE

    tokens = text.split(".")
    if re.search(r"\s", text):
        fault = WHITE_SPACE
    elif not all(tokens):
        fault = EMPTY_TOKEN
    elif {"*", ">"} & set(tokens):
        fault = "has a wildcard: a message is published to one subject, such as orders.new"
    else:
        return text
    raise typer.BadParameter(f"{text!r} {fault}")
