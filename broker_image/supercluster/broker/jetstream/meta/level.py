"""Which operations the map of streams may have: what all of its brokers can read (docs/adr/versions.md).

An operation that came with frame version N may stand in the map when its level is N or more. The level is an operation itself; it
is raised by the request that needs it, and only while every broker that the map knows is in contact and speaks N. It never falls:
a broker that speaks less is refused in the handshake from then on, so nobody who cannot read the map ever has to. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from supercluster.broker.jetstream import errors

# Operations that may be in any map: those of brokers that know no level.
FIRST = 0
CORDONS = 5
"""Brokers that get no new copies, and the level itself."""
RESTORES = 7
"""Streams that are being restored."""
EXTERNAL = 8
"""Streams with origins that another API leads to."""
COUNTED_SOURCES = 11
"""Streams that add up the counters of their sources: an older leader would store what each of them says as it is."""


def raise_level(level: int) -> bytes:
    """The section body that has the map go on with operations of that version."""
    return json.dumps({"op": "level", "level": level}).encode()


def needs_raise(
    level: int, needed: int, nodes: Iterable[str], speaks: Callable[[str], int | None], what: str
) -> bool:
    """Has the level to be raised before an operation that needs `needed`? `nodes`: all that the map knows; `speaks`: the frame
    version of a broker, None while it is out of contact.

    Raises:
        ApiError: it cannot be, and who is to be updated or brought back.
    """
    if level >= needed:
        return False
    why = []
    for node in sorted(set(nodes)):
        version = speaks(node)
        if version is None:
            why.append(f"{node} is out of contact")
        elif version < needed:
            why.append(f"{node} speaks version {version}")
    if why:
        raise errors.map_level_too_low(
            f"{what} can be in the map when all brokers speak version {needed}, and {', '.join(why)}: update them, bring them back, or "
            "say that they go for good"
        )
    return True
