"""The pace at which copies are fed: a token bucket over the bytes sent to all learners of a move together."""

from __future__ import annotations

# So much may be sent at once after a rest: enough that one large append does not wait for many small ones.
BURST_MS = 200


class Pace:
    """A bucket that fills with `bytes_per_s`. It may be overdrawn by one message, which the next ones wait for: so no
    message is too large for a small pace."""

    def __init__(self, bytes_per_s: int, now_ms: int) -> None:
        if bytes_per_s <= 0:
            raise ValueError(
                f"bytes_per_s is {bytes_per_s}: a pace has to be positive; without one there is no limit"
            )
        self.bytes_per_s = bytes_per_s
        # Never 0: a bucket that is never more than empty would let nothing go for ever.
        self._burst = max(1, bytes_per_s * BURST_MS // 1000)
        self._left = float(self._burst)
        self._at_ms = now_ms

    def _fill(self, now_ms: int) -> None:
        if now_ms > self._at_ms:
            self._left = min(self._left + (now_ms - self._at_ms) * self.bytes_per_s / 1000, self._burst)
            self._at_ms = now_ms

    def may_send(self, now_ms: int) -> bool:
        self._fill(now_ms)
        return self._left > 0

    def sent(self, size_bytes: int, now_ms: int) -> None:
        self._fill(now_ms)
        self._left -= size_bytes

    def next_ms(self, now_ms: int) -> int:
        self._fill(now_ms)
        if self._left > 0:
            return now_ms
        return now_ms + int(-self._left * 1000 / self.bytes_per_s) + 1
