"""DIRECT.GET: answers that are messages themselves, either one or a batch with a status at its end.

An invalid request is answered with a status in NATS's words; unknown fields are ignored. An answer is bounded
in messages and bytes. The status at its end gives the number of messages left, and the client asks for them
again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from supercluster.broker.jetstream.api.requests import MessageGetRequest
from supercluster.broker.jetstream.encoding.json_fields import Fields, decode_object
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.state import lookup
from supercluster.broker.jetstream.state.log_reader import Message
from supercluster.broker.jetstream.state.message_source import MessageSource
from supercluster.broker.jetstream.state.messages import StoredMessages

BATCH_MAX = 8192
BYTES_MAX = 8 << 20
"""Of one batch, whatever is asked for."""
_SLICE_ANSWERS = 128
"""Answers that are put together in one go."""
_SLICE_READS = 32
"""The same, where each is somewhere else in the log."""
SUBJECTS_MAX = 1024
"""Subjects whose last messages one request may ask for, as NATS has it."""

NOT_FOUND = b"NATS/1.0 404 Message Not Found\r\n\r\n"
NO_RESULTS = b"NATS/1.0 404 No Results\r\n\r\n"

Answer = tuple[bytes, bytes]
"""Header and payload."""


@dataclass(frozen=True, slots=True)
class DirectGetRequest(MessageGetRequest):
    """What is absent is 0 or empty. `batch` is None for a single message."""

    multi_last: tuple[str, ...] = ()
    batch: int | None = None
    max_bytes: int = 0
    up_to_seq: int = 0
    up_to_time_ns: int = 0


def _status(code: int, text: str) -> ApiError:
    return ApiError(code, 10003, text)


def read(stream: str, payload: bytes, subject: str = "") -> DirectGetRequest:
    """The request in a payload, or for a subject's last message.

    Raises:
        ApiError: 408, worded as the status that the client is told.
    """
    if payload and not payload.strip():
        raise _status(408, "Malformed Request")
    try:
        fields = Fields(decode_object(payload), "request")
        request = DirectGetRequest(
            stream,
            **DirectGetRequest.place(fields, subject),
            multi_last=fields.texts("multi_last"),
            batch=fields.integer("batch") or None,
            max_bytes=fields.integer("max_bytes"),
            up_to_seq=fields.unsigned("up_to_seq"),
            up_to_time_ns=fields.time_ns("up_to_time"),
        )
    except ApiError:
        raise _status(408, "Malformed Request") from None
    by_place = bool(request.seq), bool(request.next_by_subject), bool(request.start_time_ns)
    if not (any(by_place) or request.last_by_subject or request.multi_last):
        raise _status(408, "Empty Request")
    if (
        (request.seq and request.start_time_ns)
        or (request.last_by_subject and (any(by_place) or request.batch is not None))
        or (request.multi_last and (request.last_by_subject or request.next_by_subject))
        or (request.up_to_seq and request.up_to_time_ns)
    ):
        raise _status(408, "Bad Request")
    return request


def answers(
    state: StoredMessages, source: MessageSource, request: DirectGetRequest
) -> Generator[int, None, list[Answer]]:
    """What the client gets, in order.

    Raises:
        ApiError: it is too much.
    """
    if request.multi_last:
        return (yield from _multi_last(state, request))
    if request.batch is not None:
        return (yield from _batch(state, source, request, request.batch))
    message = yield from find(state, request)
    if message is None:
        return [(NOT_FOUND, b"")]
    header = b"" if request.no_header else _header(state, message)
    return [(header, message.payload)]


def _start_seq(state: StoredMessages, request: MessageGetRequest) -> int:
    return lookup.seq_at(state, request.start_time_ns) if request.start_time_ns else request.seq


def find(state: StoredMessages, request: MessageGetRequest) -> Generator[int, None, Message | None]:
    """The one message that is asked for."""
    if request.last_by_subject:
        return (yield from lookup.last_of(state, request.last_by_subject))
    if request.next_by_subject or request.start_time_ns:
        return (yield from lookup.next_from(state, _start_seq(state, request), request.next_by_subject))
    return state.message(request.seq)


def _batch(
    state: StoredMessages, source: MessageSource, request: DirectGetRequest, count: int
) -> Generator[int, None, list[Answer]]:
    subject = request.next_by_subject
    seq = max(_start_seq(state, request), state.first_seq)
    first = yield from lookup.next_from(state, seq, subject)
    if first is None:
        return [(NOT_FOUND, b"")]
    pending = yield from source.counted((subject,) if subject else (), seq - 1)
    found: list[Answer] = []
    room = request.max_bytes if 0 < request.max_bytes < BYTES_MAX else BYTES_MAX
    last_seq, message = 0, first if count > 0 else None
    while message is not None:
        pending = max(0, pending - 1)
        header = b"" if request.no_header else _header(state, message, pending, last_seq)
        found.append((header, message.payload))
        last_seq = message.seq
        room -= _size(message)
        if room <= 0 or len(found) >= min(count, BATCH_MAX):
            break
        if len(found) % _SLICE_ANSWERS == 0:
            yield lookup.SLICE_UNITS
        message = yield from lookup.next_from(state, message.seq + 1, subject)
    return [*found, (_end(pending, last_seq), b"")]


def _multi_last(state: StoredMessages, request: DirectGetRequest) -> Generator[int, None, list[Answer]]:
    up_to_seq = request.up_to_seq or state.last_seq
    if request.up_to_time_ns:
        up_to_seq = lookup.seq_at(state, request.up_to_time_ns) - 1
    try:
        seqs = yield from lookup.lasts(state, request.multi_last, up_to_seq, SUBJECTS_MAX)
    except lookup.TooMuchError:
        raise _status(413, "Too Many Results") from None
    seqs = [seq for seq in seqs if seq >= request.seq]
    if not seqs:
        return [(NO_RESULTS, b"")]
    count = request.batch if request.batch is not None and request.batch > 0 else len(seqs)
    room = request.max_bytes if 0 < request.max_bytes < BYTES_MAX else BYTES_MAX
    found: list[Answer] = []
    last_seq = 0
    left = len(seqs)
    for seq in seqs[:count]:
        left -= 1
        message = state.message(seq)
        if message is None:
            continue  # It was removed since its place was found.
        found.append((_header(state, message, left, last_seq), message.payload))
        last_seq = seq
        room -= _size(message)
        if room <= 0:
            break
        if left % _SLICE_READS == 0:
            yield lookup.SLICE_UNITS
    return [*found, (_end(left, last_seq, up_to_seq), b"")]


def _size(message: Message) -> int:
    return len(message.subject) + len(message.header) + len(message.payload)


def _header(state: StoredMessages, message: Message, pending: int | None = None, last_seq: int = 0) -> bytes:
    """The stored message's header with where it stands added; in a batch, with what is left and what was before."""
    lines = (
        f"Nats-Stream: {state.config.name}\r\nNats-Subject: {message.subject.decode('utf-8', 'replace')}\r\n"
        f"Nats-Sequence: {message.seq}\r\nNats-Time-Stamp: {format_time(message.time_ns)}\r\n"
    )
    if pending is not None:
        lines += f"Nats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last_seq}\r\n"
    return (message.header[:-2] or b"NATS/1.0\r\n") + lines.encode() + b"\r\n"


def _end(pending: int, last_seq: int, up_to_seq: int = 0) -> bytes:
    """The status behind a batch."""
    text = f"NATS/1.0 204 EOB\r\nNats-Num-Pending: {pending}\r\nNats-Last-Sequence: {last_seq}\r\n"
    if up_to_seq:
        text += f"Nats-UpTo-Sequence: {up_to_seq}\r\n"
    return text.encode() + b"\r\n"
