"""The six streams of a cutover, and the four publishers that write to them. Data only.

A publisher numbers its messages from 1 and sends them to its streams in turn, so a number tells the stream that it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

SECOND_NS = 1_000_000_000
WINDOWED, REPEATED, PLAIN, SINGLE = 1, 2, 3, 4
PRELOADED_MODE = 9
"""Of what was in a stream before the publishers began."""
MODES = {
    WINDOWED: "acknowledged, a window",
    REPEATED: "Nats-Msg-Id, retried",
    PLAIN: "plain",
    SINGLE: "one at a time",
    PRELOADED_MODE: "preloaded",
}
BUCKET = "SETTINGS"
KEYS = 50
"""With the bucket's history this is more than a row publishes, so that no revision is dropped."""
HISTORY = 64
PRELOADED = 300
DELETED = frozenset(range(7, PRELOADED, 7))
"""Sequences of AUDIT that are deleted before the cutover, and must not come back."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One stream."""

    name: str
    subjects: tuple[str, ...]
    replicas: int
    text: str
    """For people."""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> dict[str, Any]:
        """As JetStream's API takes it."""
        basic = {"name": self.name, "subjects": list(self.subjects), "num_replicas": self.replicas}
        return {**basic, "storage": "file", "duplicate_window": 120 * SECOND_NS, **self.more}

    @property
    def is_queue(self) -> bool:
        return self.more.get("retention") == "workqueue"

    def subject(self, number: int) -> str:
        """The subject of a publisher's message."""
        if self.name == KV:
            return f"$KV.{BUCKET}.key-{number // 2 % KEYS}"
        return f"{self.name.lower()}.{number % 10}"


KV = f"KV_{BUCKET}"
_BUCKET = {"max_msgs_per_subject": HISTORY, "allow_rollup_hdrs": True, "deny_delete": True}
KINDS = (
    Kind("ORDERS", ("orders.>",), 3, "limits, R3"),
    Kind("EVENTS", ("events.>",), 1, "limits, R1"),
    Kind("PAYMENTS", ("payments.>",), 3, "limits, R3, message ids"),
    Kind("JOBS", ("jobs.>",), 3, "work queue, R3", {"retention": "workqueue"}),
    Kind(KV, (f"$KV.{BUCKET}.>",), 3, "key-value bucket, R3", {**_BUCKET, "allow_direct": True}),
    Kind("AUDIT", ("audit.>",), 3, "limits, R3, with deleted messages", {"max_msgs": 1_000_000}),
)
BY_NAME = {kind.name: kind for kind in KINDS}
STREAMS_OF: dict[int, tuple[str, ...]] = {
    WINDOWED: ("ORDERS", "JOBS"),
    REPEATED: ("PAYMENTS", "AUDIT"),
    PLAIN: ("EVENTS", "ORDERS"),
    SINGLE: (KV, "AUDIT"),
}
"""Where each publisher's messages go, in turn."""


def stream_of(mode: int, number: int) -> str:
    streams = STREAMS_OF[mode]
    return streams[number % len(streams)]
