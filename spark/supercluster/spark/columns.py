"""The columns of a read, and records as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from supercluster.spark.wire import Record, parse_headers

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
    "headers": lambda records: [_headers(record[3]) for record in records],
    "payload": lambda records: [record[4] for record in records],
}


def _headers(block: bytes) -> list[tuple[str, list[str]]] | None:
    return list(parse_headers(block).items()) if block else None


def batch_of(records: list[Record], names: Sequence[str], *, stream: str = "") -> pa.RecordBatch:
    """Records of one stream as an Arrow batch."""
    import pyarrow as pa

    schema = arrow_schema(names)
    columns = [
        constant(stream, len(records))
        if field.name == STREAM
        else pa.array(_VALUES[field.name](records), type=field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def constant(text: str, rows: int) -> pa.StringArray:
    """A column that has the same everywhere."""
    import pyarrow as pa

    return pa.repeat(text, rows)


def map_of_headers(blocks: pa.BinaryArray) -> pa.MapArray:
    """The column `headers` of header blocks."""
    import pyarrow as pa

    kind = arrow_schema(["headers"])[0].type
    if not blocks.buffers()[2].size:
        return pa.nulls(len(blocks), kind)
    try:
        found = _regular_headers(blocks, kind)
    except pa.ArrowInvalid:  # not UTF-8
        found = None
    if found is not None:
        return found
    return pa.array([_headers(block) for block in blocks.to_pylist()], kind)


def _regular_headers(blocks: pa.BinaryArray, kind: pa.MapType) -> pa.MapArray | None:
    """The same without a step for each block; None where a name is repeated in one, or a first line has a colon.

    Raises:
        ArrowInvalid: a name or a value is not UTF-8.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    lines = pc.split_pattern(blocks, pattern=b"\r\n")
    with_colon = pc.greater_equal(pc.find_substring(lines.values, pattern=b":"), 0)
    places = lines.offsets
    if pc.any(with_colon.take(places.slice(0, len(blocks)))).as_py():
        return None
    before = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(with_colon.cast(pa.int32()))])
    parts = pc.split_pattern(lines.values.filter(with_colon), pattern=b":", max_splits=1).values.cast(
        pa.string()
    )
    count = len(parts) // 2
    evens = pc.multiply(_counting(count), 2)
    names, values = parts.take(evens), pc.ascii_trim_whitespace(parts.take(pc.add(evens, 1)))
    offsets = before.take(places)
    if not _are_distinct(names, offsets):
        return None
    lists = pa.ListArray.from_arrays(_counting(count + 1), values)
    entries = pa.StructArray.from_arrays([names, lists], fields=[kind.key_field, kind.item_field])
    there = pc.greater(pc.binary_length(blocks), 0)
    return pa.Array.from_buffers(
        kind, len(blocks), [there.buffers()[1], offsets.buffers()[1]], children=[entries]
    )


def _are_distinct(names: pa.StringArray, offsets: pa.Int32Array) -> bool:
    """Does each of the lists of names that begin and end there have none twice?"""
    import pyarrow as pa
    import pyarrow.compute as pc

    counts = pc.subtract(offsets.slice(1), offsets.slice(0, len(offsets) - 1))
    if not len(names) or pc.max(counts).as_py() < 2:
        return True
    known = names.dictionary_encode()
    owners = pc.list_parent_indices(pa.ListArray.from_arrays(offsets, names))
    pairs = pc.add(pc.multiply(owners, len(known.dictionary)), known.indices.cast(pa.int64()))
    return bool(pc.count_distinct(pairs).as_py() == len(names))


_COUNTED: list[pa.Int32Array] = []


def _counting(count: int) -> pa.Int32Array:
    """0, 1, 2, …"""
    import pyarrow as pa

    if not _COUNTED or len(_COUNTED[0]) < count:
        _COUNTED[:] = [pa.array(range(max(16_384, 2 * count)), pa.int32())]
    return _COUNTED[0].slice(0, count)
