"""A simulated broker's clocks and network: `ports.Clock` and `ports.Network` over the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from supercluster.broker.ports import Channel

if TYPE_CHECKING:
    from tests.simulator.world import World


class SimClock:
    """A broker's clocks: wall time drifts and is off, monotonic time has a start of its own."""

    def __init__(self, world: World, offset_ns: int, drift_ppm: int) -> None:
        self._world = world
        self._offset_ns = offset_ns
        self._drift_ppm = drift_ppm

    def now_ns(self) -> int:
        ns = self._world.now_us * 1000
        return 1_700_000_000_000_000_000 + self._offset_ns + ns + ns * self._drift_ppm // 1_000_000

    def monotonic_ms(self) -> int:
        us = self._world.now_us
        return (us + us * self._drift_ppm // 1_000_000) // 1000


class SimNetwork:
    """`ports.Network` of one broker."""

    def __init__(self, world: World, node: str) -> None:
        self._world = world
        self._node = node

    def send(self, node: str, frame_type: int, body: Sequence[bytes | memoryview], channel: Channel) -> bool:
        return self._world.send(self._node, node, frame_type, b"".join(body))

    def publish(self, account: str, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        self._world.to_client(subject, header, bytes(payload))

    def publish_many(self, account: str, messages: Sequence[tuple[bytes, bytes]]) -> None:
        for subject, payload in messages:
            self._world.to_client(subject, b"", payload)

    def deliver(self, account: str, inbox: bytes, items: Sequence[tuple[bytes, bytes, bytes, Any]]) -> None:
        self._world.deliver(inbox, items)

    def has_interest(self, account: str, subject: bytes) -> bool:
        return True

    def pending_bytes(self, account: str, inbox: bytes) -> int:
        return 0
