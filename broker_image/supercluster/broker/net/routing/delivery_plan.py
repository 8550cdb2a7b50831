"""Assigns to brokers the messages that a stream delivers to a subject.

Plain subscribers get every message, wherever they are; of each queue group one member gets it, in the whole
super-cluster (CL-2, CL-6). So a frame names the groups that it is meant for: other groups at that broker are
served elsewhere. A broker gets each message at most once (CL-1). Pure: the caller draws the member for a
group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from supercluster.broker.protocol.frames import Item
from supercluster.broker.protocol.sublist import Match

Draw = Callable[[Mapping[str, int]], str]
"""One of these brokers, by their numbers of members."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one broker gets."""

    node: str
    plain: bool
    """Is it for the plain subscribers there?"""
    groups: tuple[bytes, ...]
    """One member of each of these gets each message."""
    items: Sequence[Item]


def parts_of(match: Match[Any], items: Sequence[Item], draw: Draw) -> list[Part]:
    """What other brokers get, each at most one part; groups with members here are served here."""
    groups = [group for group in match.groups if group.remote and not group.local]
    if len(groups) == 1 and not match.nodes:
        return _shares(groups[0].name, groups[0].remote, items, draw)
    names: dict[str, list[bytes]] = {node: [] for node in match.nodes}
    for group in groups:
        reached = {node: count for node, count in group.remote.items() if node in names}
        names.setdefault(draw(reached or group.remote), []).append(group.name)
    plain = set(match.nodes)
    return [Part(node, node in plain, tuple(found), items) for node, found in names.items()]


def _shares(name: bytes, members: Mapping[str, int], items: Sequence[Item], draw: Draw) -> list[Part]:
    """Each message to a broker with members of the only group, each broker's in order."""
    if len(members) == 1 or len(items) == 1:
        return [Part(draw(members), plain=False, groups=(name,), items=items)]
    shares: dict[str, list[Item]] = {}
    for item in items:
        shares.setdefault(draw(members), []).append(item)
    return [Part(node, plain=False, groups=(name,), items=share) for node, share in shares.items()]
