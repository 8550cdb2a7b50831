"""Names of an archive's files, and its record. Pure.

    stream=<name>/date=<UTC date>/<first>-<last>.parquet    messages of that date with sequences first … last
    _archive/<name>.json                                    the record

A name derives from its task's block of sequences, so a repeated task replaces its file. The record has the
number of files, rows and the sum of digests of each date, which `verify` compares.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote

from supercluster.spark.pipelines.digest import DIGEST_BYTES
from supercluster.spark.pipelines.read_task import Block

RECORDS = "_archive"
_DIGESTS = 1 << (8 * DIGEST_BYTES)
_NAME = re.compile(r"stream=([^/]+)/date=(\d{4}-\d\d-\d\d)/(\d{20})-(\d{20})\.parquet")
NS_PER_DAY = 86_400_000_000_000


class ArchiveName(NamedTuple):
    """What a file's name says."""

    stream: str
    """As it is in the name, with its special characters escaped."""
    date: str
    block: Block


def stream_folder(stream: str) -> str:
    return f"stream={quote(stream, safe='')}"


def date_of(time_ns: int) -> str:
    """The UTC date of a time in nanoseconds since 1970."""
    return dt.date.fromordinal(dt.date(1970, 1, 1).toordinal() + time_ns // NS_PER_DAY).isoformat()


def file_name(stream: str, date: str, block: Block) -> str:
    return f"{stream_folder(stream)}/date={date}/{block.first:020d}-{block.last:020d}.parquet"


def parse_name(name: str) -> ArchiveName | None:
    """None when it is no archive's file."""
    found = _NAME.fullmatch(name)
    return None if found is None else ArchiveName(found[1], found[2], Block(int(found[3]), int(found[4])))


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file that was written."""

    name: str
    date: str
    rows: int
    digest: str


@dataclass(slots=True)
class DateTotals:
    """What the files of one date add up to."""

    files: int = 0
    rows: int = 0
    digest: int = 0

    def add(self, rows: int, digest: str) -> None:
        self.files += 1
        self.rows += rows
        self.digest = (self.digest + int(digest, 16)) % _DIGESTS


@dataclass(slots=True)
class ArchiveRecord:
    """What is archived of one stream."""

    archived_to: int = 0
    """The last sequence of the last block; 0: none."""
    skipped: list[list[int]] = field(default_factory=list)
    """Ranges that retention removed before they were archived."""
    dates: dict[str, DateTotals] = field(default_factory=dict)

    def add(self, block: Block, files: Iterable[FileFacts]) -> None:
        if block.first > self.archived_to + 1:
            self.skipped.append([self.archived_to + 1, block.first - 1])
        self.archived_to = block.last
        for each in files:
            self.dates.setdefault(each.date, DateTotals()).add(each.rows, each.digest)

    def differs_from(self, names: Iterable[str]) -> str:
        """What is wrong with the number of files of a date, in one line; empty when there are as many as were written."""
        found = [parsed for name in names if (parsed := parse_name(name)) is not None]
        # Those above belong to a round that is under way.
        there = Counter(each.date for each in found if each.block.first <= self.archived_to)
        for date in sorted({*self.dates, *there}):
            wanted = self.dates[date].files if date in self.dates else 0
            if there[date] != wanted:
                return f"date {date} has {there[date]} files, and the record has {wanted}"
        return ""

    def to_json(self) -> dict[str, Any]:
        return {
            "archivedTo": self.archived_to,
            "skipped": self.skipped,
            "dates": {
                date: [each.files, each.rows, f"{each.digest:032x}"] for date, each in self.dates.items()
            },
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ArchiveRecord:
        dates = {
            date: DateTotals(files, rows, int(digest, 16))
            for date, (files, rows, digest) in value["dates"].items()
        }
        return cls(value["archivedTo"], value["skipped"], dates)
