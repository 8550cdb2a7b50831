"""Connections that publish through this super-cluster to streams that were handed to another one (BG-12).

A connection is forgotten when it closes. Each has a number, and the names of the first streams: memory is
bounded by the connections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from supercluster.broker.protocol.client_reports import STREAMS_MAX


@dataclass(slots=True)
class Crossing:
    """Of one connection, into one account."""

    messages: int = 0
    streams: dict[str, None] = field(default_factory=dict)
    """At most `STREAMS_MAX`, in the order of the first message to each."""

    def add(self, stream: str, count: int) -> None:
        self.messages += count
        if len(self.streams) < STREAMS_MAX:
            self.streams[stream] = None

    def copy(self) -> Crossing:
        return Crossing(self.messages, dict(self.streams))


class Crossings:
    """Of one broker."""

    def __init__(self) -> None:
        self._found: dict[int, dict[str, Crossing]] = {}
        """By connection, and by the streams' account."""
        self.total = 0
        """Messages since the start, also of connections that are gone."""

    def add(self, account: str, stream: str, connections: Iterable[int]) -> None:
        """`connections`: of each message to the stream, the one that published it."""
        for connection, count in Counter(connections).items():
            self._found.setdefault(connection, {}).setdefault(account, Crossing()).add(stream, count)
            self.total += count

    def went(self, connection: int) -> None:
        self._found.pop(connection, None)

    def messages_of(self, connection: int) -> int:
        return sum(each.messages for each in self._found.get(connection, {}).values())

    def with_waiting(
        self, waiting: Iterable[tuple[str, str, Iterable[int]]]
    ) -> Mapping[int, Mapping[str, Crossing]]:
        """By connection and account. `waiting`: account, stream and connections of messages that no side has answered yet."""
        found = self._found
        for account, stream, connections in waiting:
            if found is self._found:
                found = {
                    number: {name: each.copy() for name, each in own.items()} for number, own in found.items()
                }
            for connection, count in Counter(connections).items():
                found.setdefault(connection, {}).setdefault(account, Crossing()).add(stream, count)
        return found
