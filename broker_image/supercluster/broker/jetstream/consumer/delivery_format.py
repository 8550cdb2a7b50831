"""Turns stored messages into deliveries to clients: small pure functions on a consumer's hot path."""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.jetstream.consumer.pull import Asker, Item, status
from supercluster.broker.jetstream.state.message_source import MessageBatch


def new_replies(prefix: str, batch: MessageBatch, first_cseq: int, pending: int) -> list[bytes]:
    """The acknowledgement subjects of messages that are delivered for the first time; `pending` counts them too."""
    prefix += "1."
    return [
        f"{prefix}{seq}.{cseq}.{time_ns}.{left}".encode()
        for seq, cseq, time_ns, left in zip(
            batch.seqs,
            range(first_cseq, first_cseq + len(batch)),
            batch.times,
            range(pending - 1, pending - 1 - len(batch), -1),
            strict=True,
        )
    ]


def shown_items(batch: MessageBatch, replies: Sequence[bytes], *, headers_only: bool) -> list[Item]:
    """The messages as they are delivered."""
    if not headers_only:
        return list(zip(batch.subjects, replies, batch.headers, batch.payloads, strict=True))
    headers = [with_size(h, len(p)) for h, p in zip(batch.headers, batch.payloads, strict=True)]
    return [(s, r, h, b"") for s, r, h in zip(batch.subjects, replies, headers, strict=True)]


def joined(parts: list[Sequence[int]]) -> Sequence[int]:
    """Rising stretches of sequences as one."""
    if len(parts) == 1:
        return parts[0]
    return [seq for part in parts for seq in part]


def cut_to_bytes(request: Asker, items: list[Item]) -> Item | None:
    """Leave in `items` what fits into the request's bytes; a status that ends it when something does not."""
    left = request.bytes_left
    for index, item in enumerate(items):
        size = len(item[0]) + len(item[1]) + len(item[2]) + len(item[3])
        if size > left:
            del items[index:]
            request.bytes_left = left
            pending = (("Nats-Pending-Messages", request.left - index), ("Nats-Pending-Bytes", left))
            return status(request.inbox, 409, "Message Size Exceeds MaxBytes", *pending)
        left -= size
    request.bytes_left = left
    if left > 0 or request.left <= len(items):
        return None
    # Bytes that came out even end the request too: nothing else could fit, and 0 would mean "no bound".
    pending = (("Nats-Pending-Messages", request.left - len(items)), ("Nats-Pending-Bytes", 0))
    return status(request.inbox, 409, "Message Size Exceeds MaxBytes", *pending)


def with_size(header: bytes, size: int) -> bytes:
    """headers_only: the header with the payload's size added."""
    line = b"Nats-Msg-Size: %d\r\n\r\n" % size
    return header[:-2] + line if header else b"NATS/1.0\r\n" + line
