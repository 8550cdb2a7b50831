"""The columns subject, headers and payload of a row that is to become a message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supercluster.spark.datasource import arrow_blocks
from supercluster.spark.datasource.arrow_blocks import MessageColumns
from supercluster.spark.datasource.option_values import OptionError
from supercluster.spark.sink_calls import Block
from supercluster.spark.wire import Row, header_block

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {
    "subject": ("string",),
    "headers": ("map<string,array<string>>", "map<string,string>"),
    "payload": ("binary", "string"),
}


class RowError(ValueError):
    """A row, or the frame's schema, says no message."""

    def __init__(self, column: str, why: str) -> None:
        super().__init__(f"supercluster sink: column {column} {why}")


@dataclass(frozen=True, slots=True)
class RowColumns:
    """`subject` is of all rows; empty: a column says it."""

    names: tuple[str, ...]
    subject: str

    @classmethod
    def of(cls, fields: Iterable[tuple[str, str]], subject: str) -> RowColumns:
        """
        Raises:
            RowError: a column is none of ours, or has another type.
            OptionError: nothing says the subject.
        """
        names = []
        for name, kind in fields:
            if name not in KINDS:
                known = ", ".join(f"{each} {' or '.join(kinds)}" for each, kinds in KINDS.items())
                raise RowError(name, f"is none of a message; select {known}")
            if kind not in KINDS[name]:
                raise RowError(name, f"has the type {kind}; cast it to {' or '.join(KINDS[name])}")
            names.append(name)
        if "payload" not in names:
            raise RowError("payload", "is missing; select the message's content as payload")
        if ("subject" in names) == bool(subject):
            right = "give the rows' subject here, or as a column subject" + (", not both" if subject else "")
            raise OptionError("subject", subject or None, right)
        return cls(tuple(names), subject)

    def blocks(self, batches: Iterable[pa.RecordBatch], bytes_max: int) -> Iterator[Block]:
        """
        Raises:
            RowError: a value cannot be said in a message.
            RowTooLargeError: a row does not fit into a block.
        """
        return arrow_blocks.blocks(map(self._message_columns, batches), bytes_max)

    def _message_columns(self, batch: pa.RecordBatch) -> MessageColumns:
        import pyarrow as pa

        columns = {name: batch.column(at) for at, name in enumerate(self.names)}
        named = [columns[name] for name in ("subject", "payload") if name in columns]
        is_large = any(
            pa.types.is_large_string(each.type) or pa.types.is_large_binary(each.type) for each in named
        )
        kind = pa.large_binary() if is_large else pa.binary()
        subject: pa.Array | bytes = self.subject.encode()
        if "subject" in columns:
            if columns["subject"].null_count:
                raise RowError("subject", "is null in a row")
            subject = columns["subject"].cast(kind)
        headers = columns.get("headers")
        if headers is not None and headers.offsets[0] != headers.offsets[-1]:
            headers = pa.array(map(_header, headers.to_pylist()), kind)
        else:
            headers = None
        return MessageColumns(subject, headers, columns["payload"].cast(kind))

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
        """
        Raises:
            RowError: a value cannot be said in a message.
        """
        constant = self.subject.encode()
        for batch in batches:
            columns = {name: batch.column(at).to_pylist() for at, name in enumerate(self.names)}
            nothing = [None] * batch.num_rows
            for subject, headers, payload in zip(
                columns.get("subject", nothing),
                columns.get("headers", nothing),
                columns["payload"],
                strict=True,
            ):
                if subject is None and not constant:
                    raise RowError("subject", "is null in a row")
                content = payload.encode() if isinstance(payload, str) else payload or b""
                yield (subject.encode() if subject is not None else constant), _header(headers), content


def _header(pairs: list[tuple[str, Any]] | None) -> bytes:
    """A header block; empty for no pairs."""
    try:
        return header_block(
            (name, each or "")
            for name, value in pairs or ()
            for each in (value if isinstance(value, list) else [value])
        )
    except ValueError as error:
        raise RowError("headers", str(error)) from None
