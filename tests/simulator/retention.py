"""Work queues and interest: a message goes when its consumer acknowledged it, and not before.

Held against what the client really said, not against what the brokers make of it.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.raft.entry import Entry


class Retention:
    """Of the stream with the simulated consumer."""

    def __init__(self) -> None:
        self.kind = "limits"
        self.group: Callable[[], str] = lambda: ""
        self.said: set[int] = set()
        """Sequences that the client acknowledged, whether anybody heard it or not."""
        self._held: set[int] = set()
        self._since: int | None = None
        """The stream's last sequence when the consumer was there first."""

    def applied(self, group: str, state: StreamState, entry: Entry) -> str:
        """An entry was applied that nobody had applied before: what went without its time having come."""
        if self.kind == "limits" or group != self.group():
            return ""
        if self._since is None and state.consumers:
            self._since = state.last_seq
        self._held.update(range(entry.first_seq, entry.first_seq + entry.count) if entry.count else ())
        if state.messages == len(self._held):
            return ""
        gone = {seq for seq in self._held if not state.has(seq)}
        self._held -= gone
        for seq in sorted(gone - self.said):
            if self.kind == "workqueue" or (self._since is not None and seq > self._since):
                return f"message {seq} of {group} ({self.kind}) is gone and was not acknowledged"
        return ""

    def undelivered(self, state: StreamState, last_seq: int, delivered: set[int]) -> int:
        """How many messages the consumer has to get yet. Those that were on their way often enough are not among them."""
        first = 1 if self.kind == "workqueue" else (self._since if self._since is not None else last_seq) + 1
        if self.kind == "limits":
            return 0
        used_up = {
            seq
            for consumer in state.consumers.values()
            for seq, times in consumer.deliveries.items()
            if 0 < consumer.config.max_deliver <= times
        }
        return sum(seq not in delivered and seq not in used_up for seq in range(first, last_seq + 1))

    def kept(self, state: StreamState, confirmed: set[int]) -> str:
        """A message that is there although its acknowledgement was confirmed."""
        for seq in sorted(confirmed):
            if self.kind != "limits" and state.has(seq):
                return f"message {seq} is there, and its acknowledgement was confirmed"
        return ""
