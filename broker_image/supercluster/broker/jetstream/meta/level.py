"""The operations that the map of streams may contain: those that all of its brokers can read
(docs/adr/versions.md).

An operation that came with frame version N may be in the map when the map's level is N or more. The level is
an operation itself. The request that needs a level raises it, and only while every broker in the map is in
contact and supports N. The level never falls. The handshake then refuses a broker that supports less, so no
broker gets a map that it cannot read. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable

from supercluster.broker.jetstream import errors

FIRST = 0
"""Of operations that may be in any map."""
NEEDED: dict[str, int] = {}
"""Request → the level that its operation needs. None came after the first version yet."""


def raise_level(level: int) -> bytes:
    """The section body that has the map go on with operations of that version."""
    return json.dumps({"op": "level", "level": level}).encode()


def check_level(needed: int, nodes: Iterable[str], speaks: Callable[[str], int | None], what: str) -> None:
    """May the level be raised to `needed`? `nodes`: all that the map knows; `speaks`: the frame version of a broker, None while it
    is out of contact.

    Raises:
        ApiError: it may not, and who is to be updated or brought back.
    """
    why = []
    for node in sorted(set(nodes)):
        version = speaks(node)
        if version is None:
            why.append(f"{node} is out of contact")
        elif version < needed:
            why.append(f"{node} speaks version {version}")
    if why:
        raise errors.error(
            errors.MAP_LEVEL,
            f"{what} needs version {needed} on all brokers, and {', '.join(why)}: update them, bring them back, or "
            "remove them for good",
        )
