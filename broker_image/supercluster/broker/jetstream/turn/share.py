"""The bound on the deliveries of all consumers of a broker in one turn.

Each consumer's own bound keeps it from holding up the others. This one keeps sixty consumers together from
holding up the loop, and their deliveries from filling memory. Deliveries beyond the bound wait for the next
turn, at the head of the queue.
"""

from __future__ import annotations

MESSAGES_MAX = 8192
BYTES_MAX = 8 * 1024 * 1024
# To look at a message that a filter leaves out costs so much less than to hand one out; to look at a consumer, so much more.
_LOOKED_AT_PER_MESSAGE = 3
_CONSUMER_MESSAGES = 32


class TurnShare:
    """See the module. One per broker."""

    def __init__(self) -> None:
        self._messages = MESSAGES_MAX
        self._bytes = BYTES_MAX
        self.turn = 0
        """Which turn this is."""

    def renew(self) -> None:
        """Another turn."""
        self.turn += 1
        self._messages, self._bytes = MESSAGES_MAX, BYTES_MAX

    @property
    def is_used_up(self) -> bool:
        return self._messages <= 0 or self._bytes <= 0

    def take(self, messages: int, size_bytes: int, looked_at: int) -> None:
        """One consumer was handed out so much, for which so many messages were looked at."""
        self._messages -= messages + looked_at // _LOOKED_AT_PER_MESSAGE + _CONSUMER_MESSAGES
        self._bytes -= size_bytes
