"""What all connections to other brokers have in common."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from supercluster.broker.net.links.faults import LinkFaults
from supercluster.broker.net.links.open_sockets import OpenSockets
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.own_time import OwnTime


@dataclass(frozen=True, slots=True)
class LinkEnvironment:
    """Of one broker."""

    loop: asyncio.AbstractEventLoop
    clock: OwnTime
    turn: Turn
    handshake_s: float
    faults: LinkFaults
    sockets: OpenSockets
