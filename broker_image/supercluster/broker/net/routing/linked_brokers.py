"""The other brokers, as an interface for routing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from supercluster.broker.net.routing.origin import ClientOrigin
from supercluster.broker.ports import Channel
from supercluster.broker.protocol.frames import Buffer
from supercluster.broker.protocol.parser import Message


class LinkedBrokers(Protocol):
    """See `links/mesh.py`."""

    def send(self, node: str, frame_type: int, body: Sequence[Buffer], channel: Channel) -> bool:
        """See `ports.Network.send`."""

    def send_message(
        self,
        node: str,
        account: str,
        plain: bool,
        queues: list[bytes] | tuple[()],
        message: Message,
        origin: ClientOrigin | None,
    ) -> bool:
        """Collect a message for a broker's subscribers; while the link is congested its publisher is read no more."""

    def pending_bytes(self, node: str, account: str, inbox: bytes) -> int:
        """Bytes that wait on the way to that inbox."""

    def interest_changed(self, account: str, subject: bytes, queue: bytes, members: int) -> None:
        """So many subscribe here from now on."""

    def wake(self) -> None:
        """Something comes from a client: has this process stood still?"""
