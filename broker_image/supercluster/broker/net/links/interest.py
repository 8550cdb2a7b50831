"""The subscriptions that a broker has announced to a linked broker, and those that it has received from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from supercluster.broker.net.links.link import Link
from supercluster.broker.ports import Channel
from supercluster.broker.protocol import frames
from supercluster.broker.protocol.frames import FrameType

INTEREST_ENTRIES_PER_FRAME = 8192

Interest: TypeAlias = Mapping[tuple[bytes, bytes], int]
"""(subject, queue) → subscriptions; 0: none any more."""


def tell_interest(link: Link, account: str, entries: Interest) -> None:
    """Tell a broker that so many subscribe here. It has to hear of it: a link that takes no more is given up."""
    told = [(subject, queue, members) for (subject, queue), members in entries.items()]
    for start in range(0, len(told), INTEREST_ENTRIES_PER_FRAME):
        body = frames.encode_interest(account, told[start : start + INTEREST_ENTRIES_PER_FRAME])
        if not link.frame(FrameType.INTEREST, [body], Channel.CONTROL):
            link.control.close("its queue is full, and subscriptions have to be sent")
            return


def note_interest(link: Link, account: str, entries: list[tuple[bytes, bytes, int]]) -> None:
    """A broker told of its subscriptions."""
    known = link.interest.setdefault(account, {})
    for subject, queue, members in entries:
        if members:
            known[subject, queue] = members
        else:
            known.pop((subject, queue), None)
