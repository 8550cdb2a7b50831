"""The task that writes a block's messages to one Parquet file for each UTC date."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from supercluster.spark.columns import (
    COLUMNS,
    PAYLOAD_BYTES_PER_BATCH,
    ROWS_PER_BATCH,
    arrow_schema,
    batch_of,
)
from supercluster.spark.pipelines.archive.layout import FileFacts, date_of, file_name, parse_name
from supercluster.spark.pipelines.digest import RowDigest, columns_of
from supercluster.spark.pipelines.locations import Location
from supercluster.spark.pipelines.read_task import Block, Reading
from supercluster.spark.wire import Record

if TYPE_CHECKING:
    import pyarrow.parquet as pq

DIGEST_KEY, ROWS_KEY, LINEAGE_KEY = "supercluster.digest", "supercluster.rows", "supercluster.lineage"


@dataclass(frozen=True)
class WrittenBlock:
    """The block, and the files that have its messages."""

    block: Block
    lineage: str
    files: tuple[FileFacts, ...]

    @property
    def is_whole(self) -> bool:
        """Do the files have a message of each sequence?"""
        return sum(each.rows for each in self.files) == self.block.last - self.block.first + 1


@dataclass(frozen=True)
class WriteBlock:
    """The core of the tasks. Files get their names when the whole block was read."""

    location: Location
    stream: str

    def __call__(self, reading: Reading) -> WrittenBlock:
        with ExitStack() as stack:
            files: dict[str, DayFile] = {}
            for records in reading:
                for record in records:
                    date = date_of(record[1])
                    if date not in files:
                        name = file_name(self.stream, date, reading.block)
                        files[date] = DayFile(name, date, stack.enter_context(self.location.new_file(name)))
                    files[date].take(record)
            written = [
                self._kept(each.close(reading.lineage), each.path, reading.lineage) for each in files.values()
            ]
        return WrittenBlock(reading.block, reading.lineage, tuple(written))

    def _kept(self, new: FileFacts, path: Path, lineage: str) -> FileFacts:
        """The file of an earlier attempt stays when it has messages that the stream no longer has."""
        before = facts_of(self.location, new.name, lineage)
        if before is not None and before.rows > new.rows:
            self.location.settle(new.name)
            path.unlink()
            return before
        return new


def facts_of(location: Location, name: str, lineage: str) -> FileFacts | None:
    """What an archive's file says of itself; None when there is none, or none of this life of the stream."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = parse_name(name)
    try:
        with location.local_file(name) as path, pq.ParquetFile(path) as file:
            says = {key.decode(): value.decode() for key, value in (file.metadata.metadata or {}).items()}
    except (FileNotFoundError, pa.ArrowInvalid):
        return None
    if found is None or says.get(LINEAGE_KEY) != lineage:
        return None
    return FileFacts(name, found.date, int(says[ROWS_KEY]), says[DIGEST_KEY])


class DayFile:
    """One Parquet file that grows by batches."""

    def __init__(self, name: str, date: str, path: Path) -> None:
        import pyarrow.parquet as pq

        self._name, self._date = name, date
        self.path = path
        self._writer: pq.ParquetWriter = pq.ParquetWriter(
            path, arrow_schema(list(COLUMNS)), compression="zstd"
        )
        self._records: list[Record] = []
        self._bytes = 0
        self._rows = 0
        self._digest = RowDigest()

    def take(self, record: Record) -> None:
        self._records.append(record)
        self._bytes += len(record[4])
        if len(self._records) >= ROWS_PER_BATCH or self._bytes >= PAYLOAD_BYTES_PER_BATCH:
            self._flush()

    def _flush(self) -> None:
        for record in self._records:
            self._digest.add(*columns_of(record))
        if self._records:
            self._writer.write_batch(batch_of(self._records, list(COLUMNS)))
        self._rows += len(self._records)
        self._records, self._bytes = [], 0

    def close(self, lineage: str) -> FileFacts:
        self._flush()
        digest = self._digest.value()
        self._writer.add_key_value_metadata(
            {DIGEST_KEY: digest, ROWS_KEY: str(self._rows), LINEAGE_KEY: lineage}
        )
        self._writer.close()
        return FileFacts(self._name, self._date, self._rows, digest)
