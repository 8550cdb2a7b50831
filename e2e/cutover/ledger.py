"""What has to be on green, message by message, and what is. Pure.

Every message says who published it and its number there. Of each publisher, every message that was confirmed is on green once, at the
sequence that its confirmation named, and behind the publisher's earlier messages in its stream. Of a plain publisher that is every
message. One without an answer may be there or not, but not twice. A message that was sent again under its Nats-Msg-Id may stand where
either sending put it, so its place says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from e2e.cutover.kinds import DELETED, MODES, PLAIN, PRELOADED, PRELOADED_MODE, stream_of

PAYLOAD_BYTES = 128
HEAD_BYTES = 13
"""One digit of the publisher and twelve of the number."""
EXAMPLES_MAX = 8


def payload(mode: int, number: int) -> bytes:
    return b"%d%012d" % (mode, number) + b"x" * (PAYLOAD_BYTES - HEAD_BYTES)


def author(body: bytes) -> tuple[int, int] | None:
    """(publisher, number) of a message; None when no publisher of ours wrote it."""
    head = bytes(body[:HEAD_BYTES])
    return (int(head[:1]), int(head[1:])) if len(head) == HEAD_BYTES and head.isdigit() else None


@dataclass(frozen=True, slots=True)
class Sent:
    """What one publisher knows of its messages, numbered from 1."""

    mode: int
    count: int
    confirmed: Mapping[int, int] = field(default_factory=dict)
    """The sequence that was answered, by number."""
    refused: frozenset[int] = frozenset()
    """Those that were answered by an error, and by nothing else."""
    resent: frozenset[int] = frozenset()
    """Those that were sent more than once."""
    refused_unnamed: Mapping[str, int] = field(default_factory=dict)
    """By stream, refusals of plain messages: they do not say which."""

    @property
    def required(self) -> Iterable[int]:
        """Those that have to be there."""
        return range(1, self.count + 1) if self.mode == PLAIN else self.confirmed

    @property
    def unanswered(self) -> int:
        """Those of which nobody knows. A plain publisher has no answers to wait for."""
        return 0 if self.mode == PLAIN else self.count - len(self.confirmed) - len(self.refused)


@dataclass(slots=True)
class Verdict:
    """What became of the messages."""

    lost: int = 0
    repeated: int = 0
    disordered: int = 0
    displaced: int = 0
    """At another sequence than was confirmed."""
    foreign: int = 0
    """Written by nobody, or deleted before."""
    refused: int = 0
    unanswered: int = 0
    examples: list[str] = field(default_factory=list)
    """Some of those that are wrong, by name."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.repeated or self.disordered or self.displaced or self.foreign)

    def note(self, text: str) -> None:
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)


class Ledger:
    """Compares what green's streams hold with what was sent."""

    def __init__(self, sent: Iterable[Sent], preloaded: str = "AUDIT") -> None:
        """`preloaded`: the stream that has the preloaded messages; empty: none has."""
        self._sent = {found.mode: found for found in sent}
        self._preloaded = preloaded
        self._at: dict[tuple[int, int], int] = {}
        """Sequence of each message that was seen."""
        self._verdict = Verdict()

    def note(self, stream: str, messages: Mapping[int, bytes]) -> None:
        """The whole stream, by sequence."""
        newest: dict[int, int] = {}
        for sequence in sorted(messages):
            found = author(messages[sequence])
            if found is None or not self._belongs(stream, *found):
                self._verdict.foreign += 1
                self._verdict.note(f"foreign: {stream} {sequence}: {messages[sequence][:HEAD_BYTES]!r}")
                continue
            mode, number = found
            if found in self._at:
                self._verdict.repeated += 1
                self._verdict.note(f"repeated: {_name(*found)} at {stream} {self._at[found]} and {sequence}")
                continue
            self._at[found] = sequence
            if mode in self._sent and number in self._sent[mode].resent:
                continue
            if number < newest.get(mode, 0):
                self._verdict.disordered += 1
                self._verdict.note(
                    f"out of order: {_name(*found)} behind {newest[mode]} at {stream} {sequence}"
                )
            newest[mode] = max(newest.get(mode, 0), number)

    def _belongs(self, stream: str, mode: int, number: int) -> bool:
        if mode == PRELOADED_MODE:
            return stream == self._preloaded and 1 <= number <= PRELOADED and number not in DELETED
        return (
            mode in self._sent and 1 <= number <= self._sent[mode].count and stream_of(mode, number) == stream
        )

    def verdict(self) -> Verdict:
        """All streams were noted."""
        found = self._verdict
        required = {(sent.mode, number) for sent in self._sent.values() for number in sent.required}
        if self._preloaded:
            required |= {(PRELOADED_MODE, n) for n in range(1, PRELOADED + 1) if n not in DELETED}
        missing = self._unforgiven(sorted(required - self._at.keys()))
        found.lost = len(missing)
        for mode, number in missing[:EXAMPLES_MAX]:
            found.note(f"lost: {_name(mode, number)} of {_stream(mode, number, self._preloaded)}")
        for sent in self._sent.values():
            found.refused += len(sent.refused) + sum(sent.refused_unnamed.values())
            found.unanswered += sent.unanswered
            for number, sequence in sent.confirmed.items():
                at = self._at.get((sent.mode, number), sequence)
                if at != sequence:
                    found.displaced += 1
                    found.note(
                        f"displaced: {_name(sent.mode, number)} was confirmed at {sequence}, is at {at}"
                    )
        return found

    def _unforgiven(self, missing: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Without as many plain messages of each stream as were refused."""
        sent = self._sent.get(PLAIN)
        left = dict(sent.refused_unnamed) if sent is not None else {}
        found = []
        for mode, number in missing:
            stream = stream_of(mode, number) if mode == PLAIN else ""
            if left.get(stream, 0):
                left[stream] -= 1
            else:
                found.append((mode, number))
        return found


def _name(mode: int, number: int) -> str:
    return f"{MODES.get(mode, mode)} {number}"


def _stream(mode: int, number: int, preloaded: str) -> str:
    return preloaded if mode == PRELOADED_MODE else stream_of(mode, number)


@dataclass(slots=True)
class Deliveries:
    """What one consumer saw, by the stream's sequence."""

    name: str
    stream: str
    is_ordered: bool = False
    """It acknowledges nothing, and is promised every message once and in order."""
    bodies: dict[int, bytes] = field(default_factory=dict)
    times: dict[int, int] = field(default_factory=dict)
    confirmed: set[int] = field(default_factory=set)
    """Acknowledgements that were confirmed."""
    again: list[int] = field(default_factory=list)
    """Deliveries of what was confirmed before; of an ordered consumer, of what came before."""
    backwards: int = 0
    changed: list[int] = field(default_factory=list)
    """Sequences that came with two different bodies."""
    newest: int = 0

    def note(self, sequence: int, body: bytes) -> None:
        """A delivery."""
        if self.bodies.setdefault(sequence, body[:HEAD_BYTES]) != body[:HEAD_BYTES]:
            self.changed.append(sequence)
        self.times[sequence] = self.times.get(sequence, 0) + 1
        if sequence in self.confirmed or (self.is_ordered and self.times[sequence] > 1):
            self.again.append(sequence)
        if self.is_ordered and sequence < self.newest:
            self.backwards += 1
        self.newest = max(self.newest, sequence)

    def wrongs(self, held: Mapping[int, bytes]) -> list[str]:
        """What is wrong, where green's stream holds these messages, or held them until this consumer confirmed them."""
        about = f"{self.name} on {self.stream}"
        seen = set(self.bodies)
        other = [n for n in seen & held.keys() if held[n][:HEAD_BYTES] != self.bodies[n]]
        found = {
            "never came": sorted(held.keys() - seen),
            "came that green does not have": sorted(seen - held.keys()),
            "came with another content than green has": sorted(other),
            "came with two contents": self.changed,
            "came again": self.again if self.is_ordered else [],
            "came again after their acknowledgement was confirmed": [] if self.is_ordered else self.again,
        }
        wrongs = [
            f"{about}: {len(those)} messages {what}: {those[:EXAMPLES_MAX]}"
            for what, those in found.items()
            if those
        ]
        if self.backwards:
            wrongs.append(f"{about}: {self.backwards} messages came out of order")
        return wrongs
