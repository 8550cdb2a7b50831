"""The output of subscribers: MSG and HMSG as pieces, collected per connection and joined once per turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.protocol.frames import Item
from supercluster.broker.protocol.parser import Message

_CRLF = b"\r\n"
_USUAL = 4096
_SIZES = [b"%d\r\n" % size for size in range(_USUAL)]
"""The usual sizes, already written out as they end a MSG line."""


def put(turn: Turn, subscription: Subscription, message: Message) -> None:
    """Collect one message for one subscription."""
    if subscription.interceptor is not None:
        kept = subscription.interceptor(message)
        if kept is None:
            return
        message = kept
    subject, reply, header, payload = message
    subscriber = subscription.subscriber
    if reply and subscriber.gate is not None:
        subscriber.gate.note_reply(reply)
    out = subscriber.out
    if not out:
        turn.dirty.append(subscriber)
    size = len(payload)
    if header and subscriber.headers:
        size += len(header)
        sizes = b"%b %d %d\r\n" % (reply, len(header), size) if reply else b"%d %d\r\n" % (len(header), size)
        out += (b"HMSG ", subject, subscription.middle, sizes, header, payload, _CRLF)
    else:
        if reply:
            sizes = b"%b %d\r\n" % (reply, size)
        else:
            sizes = _SIZES[size] if size < _USUAL else b"%d\r\n" % size
        out += (b"MSG ", subject, subscription.middle, sizes, payload, _CRLF)
    subscriber.out_messages += 1
    subscriber.out_bytes += size
    subscription.delivered += 1
    if subscription.max_messages and subscription.delivered >= subscription.max_messages:
        subscriber.end(subscription)


def put_plain(turn: Turn, subscription: Subscription, subject: bytes, payload: bytes) -> None:
    """`put` for what has neither reply nor header, to a subscription without a maximum: acknowledgements."""
    subscriber = subscription.subscriber
    out = subscriber.out
    if not out:
        turn.dirty.append(subscriber)
    size = len(payload)
    sizes = _SIZES[size] if size < _USUAL else b"%d\r\n" % size
    out += (b"MSG ", subject, subscription.middle, sizes, payload, _CRLF)
    subscriber.out_messages += 1
    subscriber.out_bytes += size
    subscription.delivered += 1


def put_items(turn: Turn, subscription: Subscription, items: Sequence[Item]) -> None:
    """Collect a pull consumer's batch for one subscription."""
    if subscription.interceptor is not None:
        subscription = subscription.receiver()
    subscriber = subscription.subscriber
    if subscription.interceptor is not None or subscription.max_messages or subscriber.gate is not None:
        for subject, reply, header, payload in items:
            if subscription.sid in subscriber.subscriptions:
                put(turn, subscription, (subject, reply, header, bytes(payload)))
        return
    subscriber.solicited = True
    out = subscriber.out
    if not out:
        turn.dirty.append(subscriber)
    middle = subscription.middle
    pieces: list[Any] = []
    total = header_bytes = 0
    for subject, reply, header, payload in items:
        size = len(payload)
        total += size
        gap = b" " if reply else b""
        if header and subscriber.headers:
            sizes = b"%d %d\r\n" % (len(header), len(header) + size)
            header_bytes += len(header)
            pieces += (b"HMSG ", subject, middle, reply, gap, sizes, header, payload, _CRLF)
        else:
            sizes = _SIZES[size] if size < _USUAL else b"%d\r\n" % size
            pieces += (b"MSG ", subject, middle, reply, gap, sizes, payload, _CRLF)
    out += pieces
    subscriber.solicited_bytes += total
    subscription.delivered += len(items)
    subscriber.out_messages += len(items)
    subscriber.out_bytes += header_bytes + total
