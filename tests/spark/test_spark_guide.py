"""The guide's tables of options name the options that the source has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from supercluster.spark.columns import KINDS
from supercluster.spark.datasource import write_options
from supercluster.spark.datasource.options import ELSEWHERE, KNOWN

pytestmark = pytest.mark.covers("SP-5")

GUIDE = Path(__file__).parents[2] / "docs" / "reference" / "spark-options.md"
NAME = re.compile(r"`([a-zA-Z][\w.]*)`")
VALUES = {"earliest", "latest", "false", "true", "re"}


def tables(section: str) -> list[list[list[str]]]:
    """The tables below a heading, each as rows of cells without its head."""
    text = GUIDE.read_text(encoding="utf-8")
    begin = re.search(rf"^#+ {re.escape(section)}$", text, re.MULTILINE)
    assert begin is not None, f"no section {section}"
    end = re.search(r"^##", text[begin.end() :], re.MULTILINE)
    part = text[begin.end() :][: end.start() if end else None]
    found: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", part, re.MULTILINE):
        lines = [
            [cell.strip() for cell in line.strip().strip("|").split(" |")] for line in block.splitlines()
        ]
        found.append(lines[2:])
    return found


def names(cell: str) -> list[str]:
    return NAME.findall(cell)


def test_the_table_of_options_has_each_option_once() -> None:
    (options,) = tables("Options of a read")
    assert sorted(name for row in options for name in names(row[0])) == sorted(KNOWN)


def test_the_table_of_differences_names_options_that_are_there_and_those_that_are_not() -> None:
    (differences,) = tables("Differences from Spark's Kafka source")
    known = {*KNOWN, *KINDS, *VALUES}
    assert [name for row in differences for name in names(row[1]) if name not in known] == []
    of_kafka = {name for row in differences for name in names(row[0])}
    assert ELSEWHERE.keys() <= {name.lower() for name in of_kafka}, "options that are refused with a remedy"


def test_the_table_of_write_options_has_each_option() -> None:
    (options,) = tables("Options of a write")
    named = {name for row in options for name in names(row[0])}
    as_for_reading = set(write_options.CONNECTION)
    assert named | as_for_reading == set(write_options.KNOWN)
