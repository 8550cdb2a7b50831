"""Delays new messages: to the rate limit of a push consumer, or to the original gaps between messages.

Its state is volatile. A new leader begins with a full allowance, and sends its first message without a gap.
"""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.jetstream.config.consumer import ConsumerConfig

# So much may go at once under a rate limit: the largest message that a client may usually send.
BURST_BYTES = 1024 * 1024
_NS = 1_000_000_000


class RateLimit:
    __slots__ = ("_allowance", "_at_ns", "_bytes_per_s", "_last", "_replays", "next_ns")

    def __init__(self, config: ConsumerConfig, now_ns: int) -> None:
        self._bytes_per_s = config.rate_limit_bps / 8
        self._allowance = float(BURST_BYTES)
        self._at_ns = now_ns
        self._replays = config.replay_policy == "original"
        self._last: tuple[int, int] | None = None
        self.next_ns: int | None = None
        """When the message that was held back may go."""

    def adapt(self, config: ConsumerConfig) -> None:
        """The configuration has changed: what was used of the allowance stays so."""
        self._bytes_per_s = config.rate_limit_bps / 8
        self._replays &= config.replay_policy == "original"

    @property
    def is_free(self) -> bool:
        """Does nothing hold messages back?"""
        return not self._replays and not self._bytes_per_s

    def caught_up(self) -> None:
        """There is no more: what comes from now on is not replayed."""
        self._replays = False

    def allowed(self, stored_ns: Sequence[int], sizes: Sequence[int], now_ns: int) -> int:
        """How many of these messages may go now; they count as gone. `next_ns` says when the next one may."""
        self.next_ns = None
        self._refill(now_ns)
        for count, (at_ns, size) in enumerate(zip(stored_ns, sizes, strict=True)):
            due_ns = max(self._after_gap(at_ns, now_ns), self._when_affordable(size, now_ns))
            if due_ns > now_ns:
                self.next_ns = due_ns
                return count
            self._allowance -= size
            self._last = (now_ns, at_ns)
        return len(stored_ns)

    def _refill(self, now_ns: int) -> None:
        gone_ns, self._at_ns = max(0, now_ns - self._at_ns), now_ns
        self._allowance = min(float(BURST_BYTES), self._allowance + self._bytes_per_s * gone_ns / _NS)

    def _after_gap(self, stored_ns: int, now_ns: int) -> int:
        if not self._replays or self._last is None:
            return now_ns
        gone_ns, last_stored_ns = self._last
        return gone_ns + max(0, stored_ns - last_stored_ns)

    def _when_affordable(self, size: int, now_ns: int) -> int:
        lacking = min(size, BURST_BYTES) - self._allowance
        if not self._bytes_per_s or lacking <= 0:
            return now_ns
        return now_ns + max(1, int(lacking / self._bytes_per_s * _NS))
