"""Answers for which nobody listens yet, while clients go to another super-cluster.

A client that is sent away closes its connection with calls under way. Their answers come to this broker, and the client's inbox is known
on the other side a moment later: it subscribes there behind its first PONG, which waits for the publishes here. Without this such a
client would wait for its time-out, though all that it sent is stored.

What is kept is bounded by number, bytes and time. Beyond that an answer is dropped, as it is without a listener at any other time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

EXPECT_MS = 15_000
"""For so long behind the last connection of an account that was sent away its answers are kept: it may be read for ten seconds."""

KEEP_MS = 5000
"""How long a client may take from its FIN to its subscriptions; most need a tenth of a second, and some two."""

ANSWERS_MAX = 20_000
BYTES_MAX = 8 << 20

LOOKS_MAX = 1000
"""Answers that one step looks at."""


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """One answer, and until when it is kept."""

    due_ms: int
    account: str
    subject: bytes
    header: bytes
    payload: bytes

    @property
    def size(self) -> int:
        return len(self.subject) + len(self.header) + len(self.payload)


class LateAnswers:
    """Of one broker."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._expected: dict[str, int] = {}
        """By account, until when its answers are kept."""
        self._kept: deque[LateAnswer] = deque()
        self._bytes = 0
        self.dropped = 0
        """Nobody listened in time, or there was no room."""
        self.delivered = 0

    def __len__(self) -> int:
        return len(self._kept)

    def expect(self, account: str) -> None:
        """A client of this account is sent away."""
        self._expected[account] = self._now_ms() + EXPECT_MS

    def keep(self, account: str, subject: bytes, header: bytes, payload: bytes) -> None:
        """Nobody listens to this answer now."""
        if account not in self._expected or subject.startswith(b"$"):
            return
        now_ms = self._now_ms()
        if now_ms >= self._expected[account]:
            del self._expected[account]
            return
        answer = LateAnswer(now_ms + KEEP_MS, account, subject, header, payload)
        if len(self._kept) >= ANSWERS_MAX or self._bytes + answer.size > BYTES_MAX:
            self.dropped += 1
            return
        self._kept.append(answer)
        self._bytes += answer.size

    def step(
        self,
        has_interest: Callable[[str, bytes], bool],
        publish: Callable[[str, bytes, bytes, bytes, bytes], None],
    ) -> None:
        """Send those for which somebody listens now, in the order in which they came, and drop those that are overdue."""
        now_ms = self._now_ms()
        for _ in range(min(LOOKS_MAX, len(self._kept))):
            answer = self._kept.popleft()
            if has_interest(answer.account, answer.subject):
                self.delivered += 1
                publish(answer.account, answer.subject, b"", answer.header, answer.payload)
            elif now_ms >= answer.due_ms:
                self.dropped += 1
            else:
                self._kept.append(answer)
                continue
            self._bytes -= answer.size
