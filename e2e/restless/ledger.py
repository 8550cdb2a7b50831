"""What has to be in a stream, message by message, and what is. Pure.

Two publishers write to each stream, one message after the other. `sure` gives each message a Nats-Msg-Id and repeats it until
it is acknowledged. `once` sends each message once, and goes on without an acknowledgement after a while. An acknowledged message
has to be there once, behind all that were acknowledged before it. A message of `once` without an acknowledgement may be there,
once. Messages that were sent before a deletion of the stream which somebody asked for are excused.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

PUBLISHERS = ("sure", "once")
EXAMPLES_MAX = 5


def payload(publisher: str, number: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(128, b".")


def author(body: bytes) -> tuple[str, int] | None:
    """(publisher, number) of a message; None when no publisher of ours wrote it."""
    publisher, _, rest = body.decode(errors="replace").partition(" ")
    number = rest.partition(" ")[0]
    return (publisher, int(number)) if publisher in PUBLISHERS and number.isdigit() else None


@dataclass(slots=True)
class Sent:
    """What one publisher knows of its messages, numbered from 1."""

    count: int = 0
    acknowledged: set[int] = field(default_factory=set)
    excused: int = 0
    """Up to this number: the stream was deleted on request since."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of the messages of a stream."""

    sent: int
    acknowledged: int
    excused: int
    found: int
    lost: int
    repeated: int
    disordered: int
    foreign: int
    examples: tuple[str, ...] = ()

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.repeated or self.disordered or self.foreign)


def judge(sent: dict[str, Sent], bodies: Iterable[bytes]) -> Verdict:
    """`bodies`: the whole stream in its order."""
    seen: dict[str, set[int]] = {name: set() for name in sent}
    newest = dict.fromkeys(sent, 0)
    found = repeated = disordered = foreign = lost = 0
    examples: list[str] = []
    for body in bodies:
        found += 1
        by = author(body)
        if by is None or not 1 <= by[1] <= sent[by[0]].count:
            foreign += 1
            examples.append(f"foreign: {body[:20]!r}")
            continue
        name, number = by
        if number in seen[name]:
            repeated += 1
            examples.append(f"repeated: {name} {number}")
            continue
        seen[name].add(number)
        if number in sent[name].acknowledged:
            if number < newest[name]:
                disordered += 1
                examples.append(f"out of order: {name} {number} behind {newest[name]}")
            newest[name] = max(newest[name], number)
    for name, one in sent.items():
        missing = sorted(number for number in one.acknowledged - seen[name] if number > one.excused)
        lost += len(missing)
        if missing:
            examples.append(f"lost: {name} {missing[0]} … {missing[-1]}, {len(missing)} of them")
    return Verdict(
        sent=sum(one.count for one in sent.values()),
        acknowledged=sum(len(one.acknowledged) for one in sent.values()),
        excused=sum(one.excused for one in sent.values()),
        found=found,
        lost=lost,
        repeated=repeated,
        disordered=disordered,
        foreign=foreign,
        examples=tuple(examples[-EXAMPLES_MAX:]),
    )
