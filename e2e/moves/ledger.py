"""What has to be in the stream, message by message, and what is. Pure.

Every message says who published it and its number there. Of each publisher exactly the messages 1 … n have to be there, once
each and in order, but for those that a broker refused, saying so. A message that was sent more than once (under its
Nats-Msg-Id) may have been stored by the first sending or by a later one, so its place among the others says nothing.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PLAIN, ACKNOWLEDGED, REPEATED = 0, 1, 2
MODES = ("plain", "acknowledged", "Nats-Msg-Id with retries")
PAYLOAD_BYTES = 128
HEAD_BYTES = 13
"""One digit of the mode and twelve of the number."""
PRELOADED_MODE = 9
"""Of what was in the stream before the publishers began."""


def payload(mode: int, number: int) -> bytes:
    return b"%d%012d" % (mode, number) + b"x" * (PAYLOAD_BYTES - HEAD_BYTES)


def author(body: bytes) -> tuple[int, int] | None:
    """(mode, number) of a message; None when no publisher of ours wrote it."""
    head = bytes(body[:HEAD_BYTES])
    return (int(head[:1]), int(head[1:])) if len(head) == HEAD_BYTES and head.isdigit() else None


@dataclass(frozen=True, slots=True)
class Sent:
    """What one publisher knows of its messages, numbered from 1."""

    count: int
    refused: frozenset[int] = frozenset()
    """Those that were answered by an error."""
    resent: frozenset[int] = frozenset()
    """Those that were sent more than once."""
    refused_unnamed: int = 0
    """Refusals of plain messages: they do not say which."""
    starts: tuple[int, ...] = ()
    """The first number that was sent over each further connection: order is promised for each connection by itself."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the messages."""

    lost: Mapping[int, int]
    """By mode."""
    repeated: int
    disordered: int
    foreign: int
    refused: int
    examples: tuple[str, ...] = ()
    """Some of those that are wrong, by name."""
    sequences: frozenset[int] = frozenset()
    """Where the publishers' messages stand."""

    @property
    def is_clean(self) -> bool:
        return not (any(self.lost.values()) or self.repeated or self.disordered or self.foreign)


EXAMPLES_MAX = 5


@dataclass(slots=True)
class Ledger:
    """Compares the stream's messages, noted in the stream's order, with what was sent."""

    sent: Mapping[int, Sent]
    preloaded: int = 0
    _counts: dict[int, int] = field(init=False)
    _seen: dict[int, dict[int, int]] = field(default_factory=dict)
    _newest: dict[tuple[int, int], int] = field(default_factory=dict)
    """By publisher and connection."""
    _disordered: int = 0
    _foreign: int = 0
    _examples: list[str] = field(default_factory=list)
    _sequences: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._counts = {PRELOADED_MODE: self.preloaded, **{m: s.count for m, s in self.sent.items()}}
        self._seen = {mode: {} for mode in self._counts}

    def _example(self, text: str) -> None:
        if len(self._examples) < EXAMPLES_MAX:
            self._examples.append(text)

    def note(self, body: bytes, sequence: int = 0) -> None:
        """The next message of the stream."""
        found = author(body)
        if found is not None and found[0] in self.sent:
            self._sequences.add(sequence)
        if found is None or not 1 <= found[1] <= self._counts.get(found[0], 0):
            self._foreign += 1
            self._example(f"foreign: {bytes(body[:HEAD_BYTES])!r}")
            return
        mode, number = found
        times = self._seen[mode].get(number, 0)
        self._seen[mode][number] = times + 1
        if times:
            self._example(f"repeated: {_name(mode)} {number}")
            return
        if mode in self.sent and number in self.sent[mode].resent:
            return
        connection = (mode, bisect_right(self.sent[mode].starts, number) if mode in self.sent else 0)
        newest = self._newest.get(connection, 0)
        if number < newest:
            self._disordered += 1
            self._example(f"out of order: {_name(mode)} {number} behind {newest}")
        self._newest[connection] = max(newest, number)

    def note_all(self, bodies: Iterable[bytes], sequences: Iterable[int] = itertools.repeat(0)) -> None:
        for body, sequence in zip(bodies, sequences, strict=False):
            self.note(body, sequence)

    def verdict(self) -> Verdict:
        """The whole stream was noted."""
        lost, refused = {}, 0
        for mode, count in self._counts.items():
            sent = self.sent.get(mode, Sent(count))
            missing = [
                number
                for number in range(1, count + 1)
                if number not in self._seen[mode] and number not in sent.refused
            ]
            # Which plain messages were refused nobody says; so many may be missing, and no more.
            lost[mode] = max(0, len(missing) - sent.refused_unnamed)
            refused += len(sent.refused) + sent.refused_unnamed
            if lost[mode]:
                self._example(f"lost: {_name(mode)} {missing[0]} … {missing[-1]}")
        repeated = sum(sum(seen.values()) - len(seen) for seen in self._seen.values())
        examples, sequences = tuple(self._examples), frozenset(self._sequences)
        return Verdict(lost, repeated, self._disordered, self._foreign, refused, examples, sequences)


def _name(mode: int) -> str:
    return MODES[mode] if mode < len(MODES) else "preloaded"
