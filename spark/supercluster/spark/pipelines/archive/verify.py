"""Compares an archive's files with its record: none missing, damaged, foreign or duplicate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from supercluster.spark.pipelines.archive.day_file import DIGEST_KEY, LINEAGE_KEY, ROWS_KEY
from supercluster.spark.pipelines.archive.layout import (
    RECORDS,
    ArchiveRecord,
    DateTotals,
    date_of,
    parse_name,
    stream_folder,
)
from supercluster.spark.pipelines.digest import RowDigest
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.parameters import ParameterError
from supercluster.spark.pipelines.read_task import Block
from supercluster.spark.pipelines.rounds import Record, Runner

ROWS_PER_READ = 10_000
COLUMNS = ["sequence", "time", "subject", "headers", "payload"]


@dataclass(frozen=True, slots=True)
class FileCheck:
    """What one file has. `wrong` is one line, or empty."""

    name: str
    rows: int
    digest: str
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class StreamCheck:
    archived_to: int
    files: int
    rows: int
    findings: list[str]


def verify_stream(location: Location, stream: str, runner: Runner) -> StreamCheck:
    """Read all files of a stream.

    Raises:
        ParameterError: nothing of the stream is archived there.
    """
    found = Record(location.below(RECORDS), f"{stream}.json").load()
    if found is None:
        raise ParameterError(
            f"location {location.where!r} has no archive of stream {stream!r}; check both names"
        )
    record = ArchiveRecord.from_json(found["work"])
    names, foreign = [], []
    for name in location.files(stream_folder(stream)):
        parsed = parse_name(name)
        if parsed is None:
            foreign.append(f"{name} is no file of the archive")
        elif parsed.block.first <= record.archived_to:
            # Those above belong to a round that is under way.
            names.append(name)
    checks = runner.map(partial(check_file, location, found["lineage"]), names) if names else []
    findings = [*foreign, *judge(record, checks)]
    return StreamCheck(record.archived_to, len(checks), sum(each.rows for each in checks), findings)


def judge(record: ArchiveRecord, checks: Iterable[FileCheck]) -> list[str]:
    """What is wrong, a line each. Pure."""
    findings: list[str] = []
    totals: dict[str, DateTotals] = {}
    blocks: dict[Block, list[str]] = {}
    for check in checks:
        name = parse_name(check.name)
        if name is None:
            continue
        if check.wrong:
            findings.append(f"{check.name}: {check.wrong}")
        totals.setdefault(name.date, DateTotals()).add(check.rows, check.digest or "0")
        blocks.setdefault(name.block, []).append(check.name)
    for date in sorted({*record.dates, *totals}):
        wanted, has = record.dates.get(date, DateTotals()), totals.get(date, DateTotals())
        if (wanted.files, wanted.rows) != (has.files, has.rows):
            findings.append(
                f"date {date}: {has.files} files with {has.rows} rows; the record has {wanted.files} files with {wanted.rows} rows"
            )
        elif wanted != has:
            findings.append(f"date {date}: the rows are not those that were written")
    findings += _overlaps(blocks)
    return findings


def _overlaps(files: Mapping[Block, list[str]]) -> Iterator[str]:
    """`files`: by their blocks, of which each has a file per date."""
    for before, after in pairwise(sorted(files)):
        if after.first <= before.last:
            both = f"{', '.join(files[before])} and {', '.join(files[after])}"
            yield f"sequences {after.first} to {min(before.last, after.last)} are in two files: {both}"


def check_file(location: Location, lineage: str, name: str) -> FileCheck:
    """Read one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with location.local_file(name) as path, pq.ParquetFile(path) as file:
            says = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
            rows, digest, wrong = _read_rows(name, file)
    except (OSError, pa.ArrowException) as error:
        return FileCheck(name, 0, "", f"it cannot be read ({str(error).splitlines()[0]})")
    if not wrong and (says.get(ROWS_KEY), says.get(DIGEST_KEY)) != (str(rows), digest):
        wrong = "its rows are not those that were written"
    if not wrong and says.get(LINEAGE_KEY) != lineage:
        wrong = f"it is of another lineage of the stream ({says.get(LINEAGE_KEY)})"
    return FileCheck(name, rows, digest, wrong)


def _read_rows(name: str, file: Any) -> tuple[int, str, str]:
    found = parse_name(name)
    digest, rows, wrong = RowDigest(), 0, ""
    before = 0
    for batch in file.iter_batches(ROWS_PER_READ, columns=COLUMNS):
        for sequence, time_us, subject, headers, payload in rows_of(batch):
            digest.add(sequence, time_us, subject, headers, payload)
            rows += 1
            if found is not None and not wrong:
                if not found.block.first <= sequence <= found.block.last:
                    wrong = f"sequence {sequence} does not belong to it"
                elif sequence <= before:
                    wrong = f"sequence {sequence} stands behind {before}"
                elif date_of(time_us * 1_000) != found.date:
                    wrong = f"sequence {sequence} is of another date"
            before = sequence
    return rows, digest.value(), wrong


def rows_of(batch: Any) -> Iterator[tuple[int, int, str, Any, bytes]]:
    """The rows of an Arrow batch as `RowDigest.add` takes them."""
    import pyarrow as pa

    columns = [batch.column(name) for name in COLUMNS]
    columns[1] = columns[1].cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    return zip(*(column.to_pylist() for column in columns), strict=True)
