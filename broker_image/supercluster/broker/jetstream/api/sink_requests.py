"""Calls of the transactional sink: `$JS.API.SINK.<call>.<stream>` (`docs/adr/spark-sink.md`).

The payload of STAGE is a line of JSON followed by a block of rows in the layout of `encoding/sections.py`.
Other payloads are JSON.
"""

from __future__ import annotations

from dataclasses import dataclass

from isal.isal_zlib import crc32

from supercluster.broker.bounds import U32_MAX
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api.requests import ApiRequest
from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.encoding.json_fields import Fields, decode_object
from supercluster.broker.jetstream.encoding.sections import decode_block
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.sink.records import BatchKey, Commit, Part, StageRequest
from supercluster.broker.jetstream.sink.sink import BLOCKS_MAX

NAME_BYTES_MAX = 128
"""Of a writer, a token and a hash."""
ROWS_MAX = 8192
"""Of one block."""


@dataclass(frozen=True, slots=True)
class SinkRequest(ApiRequest):
    pass


@dataclass(frozen=True, slots=True)
class SinkStageRequest(SinkRequest):
    stage: StageRequest


@dataclass(frozen=True, slots=True)
class SinkCommitRequest(SinkRequest):
    commit: Commit


@dataclass(frozen=True, slots=True)
class SinkAbortRequest(SinkRequest):
    batch: BatchKey
    tokens: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SinkForgetRequest(SinkRequest):
    writer: str


@dataclass(frozen=True, slots=True)
class SinkStatusRequest(SinkRequest):
    writer: str
    """Empty: of none, only what is staged."""


def wrong(field: str, why: str) -> ApiError:
    """A field of a call that cannot be."""
    return errors.error(errors.SINK_REFUSED, f"{field}: {why}")


def _name(fields: Fields, field: str, *, may_be_empty: bool = False) -> str:
    found = fields.text(field)
    if not found and not may_be_empty:
        raise wrong(field, "it is missing")
    if len(found.encode()) > NAME_BYTES_MAX:
        raise wrong(field, f"it has more than {NAME_BYTES_MAX} bytes")
    return found


def _number(fields: Fields, field: str, least: int, most: int) -> int:
    found = fields.unsigned(field)
    if not least <= found <= most:
        raise wrong(field, f"{found} is not from {least} to {most}")
    return found


def _batch(fields: Fields) -> BatchKey:
    if fields.raw("batch") is None:
        raise wrong("batch", "it is missing")
    return BatchKey(_name(fields, "writer"), fields.unsigned("batch"))


def stage(names: list[str], payload: bytes) -> ApiRequest:
    """`{"writer", "batch", "token", "block", "crc"}`, a line's end, and the block."""
    head, _, block = payload.partition(b"\n")
    with Fields(decode_object(head), "request") as fields:
        batch, token = _batch(fields), _name(fields, "token")
        number, crc = _number(fields, "block", 1, BLOCKS_MAX), _number(fields, "crc", 0, U32_MAX)
    if crc32(block) != crc:
        raise wrong("crc", f"{crc} is not the CRC-32 of the block behind it, {crc32(block)}")
    try:
        rows = decode_block(block).count
    except WireError as error:
        raise wrong("payload", str(error)) from None
    if not 0 < rows <= ROWS_MAX:
        raise wrong("payload", f"a block has from 1 to {ROWS_MAX} rows, this one has {rows}")
    return SinkStageRequest(names[0], StageRequest(batch, token, number, block))


def commit(names: list[str], payload: bytes) -> ApiRequest:
    """`{"writer", "batch", "offsets_hash", "run", "write", "parts": [{"token", "rows", "crc"}]}`, in the order of the rows."""
    parts: list[Part] = []
    with Fields(decode_object(payload), "request") as fields:
        batch, offsets_hash = _batch(fields), _name(fields, "offsets_hash", may_be_empty=True)
        run, write = (_name(fields, field, may_be_empty=True) for field in ("run", "write"))
        for found in fields.objects("parts"):
            with Fields(found, "part") as part:
                rows, crc = _number(part, "rows", 1, 1 << 48), _number(part, "crc", 0, U32_MAX)
                parts.append(Part(_name(part, "token"), rows, crc))
    if len(parts) > BLOCKS_MAX:
        raise wrong("parts", f"there are {len(parts)}, at most {BLOCKS_MAX} can be: use fewer partitions")
    return SinkCommitRequest(names[0], Commit(batch, offsets_hash, tuple(parts), run, write))


def abort(names: list[str], payload: bytes) -> ApiRequest:
    """`{"writer", "batch", "tokens"}`."""
    with Fields(decode_object(payload), "request") as fields:
        batch, tokens = _batch(fields), fields.texts("tokens")
    if len(tokens) > BLOCKS_MAX or any(len(token.encode()) > NAME_BYTES_MAX for token in tokens):
        raise wrong("tokens", f"at most {BLOCKS_MAX}, each of at most {NAME_BYTES_MAX} bytes")
    return SinkAbortRequest(names[0], batch, tokens)


def forget(names: list[str], payload: bytes) -> ApiRequest:
    """`{"writer"}`."""
    with Fields(decode_object(payload), "request") as fields:
        return SinkForgetRequest(names[0], _name(fields, "writer"))


def status(names: list[str], payload: bytes) -> ApiRequest:
    """`{"writer"}`, or nothing."""
    with Fields(decode_object(payload), "request") as fields:
        return SinkStatusRequest(names[0], _name(fields, "writer", may_be_empty=True))
