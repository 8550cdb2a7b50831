"""Advisories of a stream's leader about consumers under `$JS.EVENT`, with NATS's subjects and JSON.

An advisory about an operation is published when the operation is committed, so no advisory reports an event
that did not happen. An advisory about the leader's own state is published at once. A stream may capture these
subjects.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, NamedTuple

from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.publish.host import StreamHost


class Told(NamedTuple):
    """One advisory or metric about a consumer: `$JS.EVENT.<subject>.<stream>.<consumer>`."""

    subject: str
    kind: str
    fields: dict[str, Any]


def max_deliver(seq: int, deliveries: int) -> Told:
    """A message was delivered as often as may be."""
    fields = {"stream_seq": seq, "deliveries": deliveries}
    return Told("ADVISORY.CONSUMER.MAX_DELIVERIES", "advisory.v1.max_deliver", fields)


def naked(cseq: int, seq: int, deliveries: int) -> Told:
    """A message was refused."""
    fields = {"consumer_seq": cseq, "stream_seq": seq, "deliveries": deliveries}
    return Told("ADVISORY.CONSUMER.MSG_NAKED", "advisory.v1.nak", fields)


def terminated(cseq: int, seq: int, deliveries: int, reason: str) -> Told:
    """A message is not to come again."""
    fields: dict[str, Any] = {"consumer_seq": cseq, "stream_seq": seq, "deliveries": deliveries}
    if reason:
        fields["reason"] = reason
    return Told("ADVISORY.CONSUMER.MSG_TERMINATED", "advisory.v1.terminated", fields)


def acknowledged(cseq: int, seq: int, ack_ns: int, deliveries: int) -> Told:
    """A sampled acknowledgement, and how long it took."""
    fields = {"consumer_seq": cseq, "stream_seq": seq, "ack_time": ack_ns, "deliveries": deliveries}
    return Told("METRIC.CONSUMER.ACK", "metric.v1.consumer_ack", fields)


def action(what: str) -> Told:
    """`create` or `delete`."""
    return Told(f"ADVISORY.CONSUMER.{what.upper()}D", "advisory.v1.consumer_action", {"action": what})


def paused(until_ns: int, *, is_paused: bool) -> Told:
    """A consumer was paused, or goes on."""
    fields = {"paused": is_paused, "pause_until": format_time(until_ns)}
    return Told("ADVISORY.CONSUMER.PAUSE", "advisory.v1.consumer_pause", fields)


def pinned(group: str, pin_id: str) -> Told:
    """A client was pinned."""
    fields = {"group": group, "pinned_id": pin_id}
    return Told("ADVISORY.CONSUMER.PINNED", "advisory.v1.consumer_group_pinned", fields)


def unpinned(group: str, reason: str) -> Told:
    """A client is not pinned any more."""
    fields = {"group": group, "reason": reason}
    return Told("ADVISORY.CONSUMER.UNPINNED", "advisory.v1.consumer_group_unpinned", fields)


class Advisories:
    """Publishes them for one stream."""

    def __init__(self, account: str, stream: str, host: StreamHost) -> None:
        self._account = account
        self._stream = stream
        self._host = host
        self._number = 0

    def notify(self, consumer: str, told: Told) -> None:
        """Of a consumer."""
        head: dict[str, Any] = {"stream": self._stream, "consumer": consumer}
        if "group" in told.fields:
            head = {"account": self._account, **head}
        self._publish(f"{told.subject}.{self._stream}.{consumer}", told.kind, {**head, **told.fields})

    def stream_action(self, what: str) -> None:
        """`create`, `modify` or `delete`."""
        word = {"create": "CREATED", "modify": "UPDATED", "delete": "DELETED"}[what]
        fields = {"stream": self._stream, "action": what}
        self._publish(f"ADVISORY.STREAM.{word}.{self._stream}", "advisory.v1.stream_action", fields)

    def batch_abandoned(self, batch: bytes, reason: str) -> None:
        """What was held of an atomic batch is not held any more: `incomplete`, `large`, `timeout`, `unsupported`."""
        fields = {"stream": self._stream, "batch": batch.decode(errors="replace"), "reason": reason}
        subject = f"ADVISORY.STREAM.BATCH_ABANDONED.{self._stream}"
        self._publish(subject, "advisory.v1.stream_batch_abandoned", fields)

    def leader_elected(self, leader: str, replicas: list[dict[str, Any]], consumers: list[str]) -> None:
        """This broker leads the stream, and with it the consumers. Who has many is told of those that somebody asks about."""
        fields = {"leader": leader, "replicas": replicas}
        stream = {"stream": self._stream}
        self._publish(
            f"ADVISORY.STREAM.LEADER_ELECTED.{self._stream}",
            "advisory.v1.stream_leader_elected",
            stream | fields,
        )
        for name in consumers:
            subject = f"ADVISORY.CONSUMER.LEADER_ELECTED.{self._stream}.{name}"
            self._publish(
                subject, "advisory.v1.consumer_leader_elected", stream | {"consumer": name} | fields
            )

    def of_backup(self, what: str, fields: dict[str, Any]) -> None:
        """A snapshot or a restore begins, or is over: `snapshot_create`, `restore_complete` and so on."""
        body = {"stream": self._stream, **fields}
        self._publish(f"ADVISORY.STREAM.{what.upper()}.{self._stream}", f"advisory.v1.{what}", body)

    def quorum_lost(self, replicas: list[dict[str, Any]]) -> None:
        """This broker led the stream, and hears too few of the others."""
        self._publish(
            f"ADVISORY.STREAM.QUORUM_LOST.{self._stream}",
            "advisory.v1.stream_quorum_lost",
            {"stream": self._stream, "replicas": replicas},
        )

    def _publish(self, subject: str, kind: str, fields: dict[str, Any]) -> None:
        """To whoever listens, and to a stream that captures it; where there is neither, it costs one look."""
        if not self._host.is_heard(self._account, f"$JS.EVENT.{subject}".encode()):
            return
        now_ns = self._host.clock.now_ns()
        self._number += 1
        seed = f"{self._host.node} {self._account} {subject} {self._number} {now_ns}"
        token = blake2b(seed.encode(), digest_size=11).hexdigest()
        body = event(kind, token, now_ns, fields)
        self._host.republish(self._account, (f"$JS.EVENT.{subject}".encode(), b"", body))


def event(kind: str, token: str, now_ns: int, fields: dict[str, Any]) -> bytes:
    """An event's JSON."""
    head = {"type": f"io.nats.jetstream.{kind}", "id": token, "timestamp": format_time(now_ns)}
    return json.dumps(head | fields, separators=(",", ":"), ensure_ascii=False).encode()
