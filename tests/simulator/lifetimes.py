"""Messages with a time to live of their own: none goes before it is over, and none stays for long behind it (SF-13).

Read from headers and entries by this module itself, not by what the brokers make of them.
"""

from __future__ import annotations

from array import array

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.state.log_reader import Message
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.entry import Entry, EntryKind

SECOND_NS = 1_000_000_000
# A leader looks four times a second; what is due goes a little later.
LATE_NS = 2 * SECOND_NS


class Lifetimes:
    """Of all messages that were stored: when, and what their headers say."""

    def __init__(self) -> None:
        self._due_ns: dict[tuple[str, int], int | None] = {}
        """(group, sequence) → when its own time is over; None: never."""
        self._stored_ns: dict[tuple[str, int], int] = {}

    def inherit(self, old: str, new: str) -> None:
        """A group goes on with all that another one has."""
        self._due_ns |= {(new, seq): at for (group, seq), at in self._due_ns.items() if group == old}
        self._stored_ns |= {(new, seq): at for (group, seq), at in self._stored_ns.items() if group == old}

    def stored(self, group: str, message: Message) -> bool:
        """Note it. True for a marker, which no publisher sent."""
        key = (group, message.seq)
        self._stored_ns[key] = message.time_ns
        for line in message.header.split(b"\r\n"):
            if line.startswith(b"Nats-TTL: "):
                text = line[10:].rstrip(b"s")
                self._due_ns[key] = None if text == b"never" else message.time_ns + int(text) * SECOND_NS
        return b"Nats-Marker-Reason: MaxAge" in message.header

    def too_early(self, replica: StreamReplica, entry: Entry) -> str:
        """What the entry lets go before its time is over."""
        for kind, body in sections(entry.payload) if entry.kind == EntryKind.BATCH else ():
            if kind != Section.EXPIRE_MESSAGES:
                continue
            reader, due = Reader(body), array("Q")
            first, last = reader.u64(), reader.u64()
            due.frombytes(reader.rest())
            horizon_ns = entry.time_ns - replica.state.config.max_age_ns
            for seq in range(first, last + 1):
                if self._stored_ns.get((replica.id, seq), 0) > horizon_ns:
                    return f"SF-13: message {seq} of {replica.id} goes by max_age before its time"
            for seq in due:
                due_ns = self._due_ns.get((replica.id, seq), 0)
                if due_ns is None or due_ns > entry.time_ns:
                    return f"SF-13: message {seq} of {replica.id} goes by its TTL before its time"
        return ""

    def overdue(self, group: str, state: StreamState, now_ns: int) -> str:
        """A message that should have gone by now."""
        for (name, seq), due_ns in self._due_ns.items():
            if name == group and due_ns is not None and due_ns + LATE_NS < now_ns and state.has(seq):
                return f"message {seq} of {name} is there, {(now_ns - due_ns) / 1e9:.1f} s behind its TTL"
        return ""

    def missing(self, group: str, state: StreamState) -> str:
        """A message that never expires and is gone, where nothing else removes any."""
        for (name, seq), due_ns in self._due_ns.items():
            if name == group and due_ns is None and not state.has(seq):
                return f"SF-13: message {seq} of {name} never expires and is gone"
        return ""
