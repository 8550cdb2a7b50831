"""Messages that a broker publishes itself, like a client: to subscribers, and to the stream that captures
them.
"""

from __future__ import annotations

from supercluster.broker.jetstream.publish.republish import Publication, RepublishedMessages
from supercluster.broker.ports import Network


class Publications:
    def __init__(self, network: Network, republished: RepublishedMessages) -> None:
        self._network = network
        self._republished = republished

    def publish(self, account: str, message: Publication) -> None:
        """Publish a message that was stored, or an advisory."""
        subject, header, payload = message
        self._network.publish(account, subject, b"", header, payload)
        self._republished.publish(account, message)

    def is_heard(self, account: str, subject: bytes) -> bool:
        """Would anybody get what is published to that subject, or a stream capture it?"""
        return self._network.has_interest(account, subject) or self._republished.is_captured(account, subject)
