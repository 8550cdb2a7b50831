"""The limits and permissions of one client for its subscriptions and publishes."""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.auth.users import NO_CLIENT_LIMITS, ClientLimits
from supercluster.broker.protocol.parser import Publishes
from supercluster.broker.settings.settings import Limits


class Allowance:
    """What one client may have: by the broker's limits, and by its account's and its user's where they are lower."""

    def __init__(self, limits: Callable[[], Limits]) -> None:
        self._broker = limits
        self._limits = NO_CLIENT_LIMITS

    @property
    def subscriptions_max(self) -> int:
        most, own = self._broker().max_subscriptions, self._limits.subscriptions_max
        return most if own < 0 else min(most, own)

    @property
    def payload_bytes_max(self) -> int:
        """Of one message, with its headers."""
        most, own = self._broker().max_payload_bytes, self._limits.payload_bytes_max
        return most if own < 0 else min(most, own)

    def change(self, limits: ClientLimits) -> bool:
        """It has these limits of its account and its user from now on; returns whether what a message may be has changed."""
        before, self._limits = self.payload_bytes_max, limits
        return self.payload_bytes_max != before

    def within_payload(self, messages: Publishes) -> Publishes:
        """Those before the first that is too large for its account or its user: what was read along with CONNECT was parsed before that
        was known."""
        if self._limits.payload_bytes_max < 0:
            return messages
        most = self.payload_bytes_max
        for at, (_, _, header, payload) in enumerate(messages):
            if len(header) + len(payload) > most:
                return messages[:at]
        return messages
