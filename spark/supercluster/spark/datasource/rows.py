"""The columns of a read, and records as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from supercluster.spark.reader import Record
from supercluster.spark.wire import parse_headers

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = {
    "sequence": "bigint",
    "time": "timestamp",
    "subject": "string",
    "headers": "map<string,array<string>>",
    "payload": "binary",
}
"""Of a message. `headers` keeps every value of a repeated name; it is null for a message without headers."""
STREAM = "stream"
KINDS = {STREAM: "string", **COLUMNS}
"""All that can be asked for."""
ROWS_PER_BATCH = 10_000
PAYLOAD_BYTES_PER_BATCH = 8 * 1024 * 1024


class SchemaError(ValueError):
    """The user asked for a column that the source does not have."""

    def __init__(self, column: str, kind: str) -> None:
        known = ", ".join(f"{name} {known_kind}" for name, known_kind in KINDS.items())
        super().__init__(f"supercluster source: there is no column {column} {kind}; columns are {known}")


def check_columns(fields: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """The names of the wanted columns, which may be any selection of ours in any order.

    Raises:
        SchemaError: one is not ours, or has another type.
    """
    names = []
    for name, kind in fields:
        if KINDS.get(name) != kind:
            raise SchemaError(name, kind)
        names.append(name)
    return tuple(names)


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    import pyarrow as pa

    types = {
        STREAM: pa.string(),
        "sequence": pa.int64(),
        "time": pa.timestamp("us", tz="UTC"),
        "subject": pa.string(),
        "headers": pa.map_(pa.string(), pa.list_(pa.string())),
        "payload": pa.binary(),
    }
    return pa.schema([pa.field(name, types[name]) for name in names])


_VALUES: dict[str, Callable[[list[Record]], list[Any]]] = {
    "sequence": lambda records: [record[0] for record in records],
    "time": lambda records: [record[1] // 1_000 for record in records],
    "subject": lambda records: [record[2].decode("utf-8", "replace") for record in records],
    "headers": lambda records: [
        list(parse_headers(record[3]).items()) if record[3] else None for record in records
    ],
    "payload": lambda records: [record[4] for record in records],
}


def to_batches(
    lists: Iterable[list[Record]], names: Sequence[str], *, stream: str = ""
) -> Iterator[pa.RecordBatch]:
    """Gather records of one stream into Arrow batches of a bounded number of rows and bytes."""
    import pyarrow as pa

    schema = arrow_schema(names)
    gathered: list[Record] = []
    size_bytes = 0

    def values(name: str) -> list[Any]:
        return [stream] * len(gathered) if name == STREAM else _VALUES[name](gathered)

    def batch() -> pa.RecordBatch:
        columns = [pa.array(values(field.name), type=field.type) for field in schema]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    for records in lists:
        gathered += records
        size_bytes += sum(len(record[4]) for record in records)
        if len(gathered) >= ROWS_PER_BATCH or size_bytes >= PAYLOAD_BYTES_PER_BATCH:
            yield batch()
            gathered, size_bytes = [], 0
    if gathered:
        yield batch()
