"""Answers without a subscriber while clients go to another super-cluster.

A redirected client closes its connection while calls are running. Their answers come to this broker, and the
client's inbox is known on the other side a moment later: it subscribes there after its first PONG, which
waits for the publishes here. Without this module such a client would wait for its time-out, though all of its
messages are stored.

The kept answers are bounded by number, bytes and time. Beyond that an answer is dropped, as it is without a
subscriber at any other time. Answers on one subject stay in order: the kept ones of its subject go before an
answer that has a subscriber.
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
"""Subjects that one step looks at."""

Where = tuple[str, bytes]
"""Account and subject."""

Publish = Callable[[str, bytes, bytes, bytes, bytes], None]
"""Account, subject, reply, header and payload."""


@dataclass(frozen=True, slots=True)
class LateAnswer:
    """One answer, and until when it is kept."""

    due_ms: int
    header: bytes
    payload: bytes


class LateAnswers:
    """Of one broker."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._expected: dict[str, int] = {}
        """By account, until when its answers are kept."""
        self.kept: dict[Where, deque[LateAnswer]] = {}
        """By subject; those that were looked at last stand last."""
        self._count = 0
        self._bytes = 0
        self.dropped = 0
        """Nobody listened in time, or there was no room."""
        self.delivered = 0

    def __len__(self) -> int:
        return self._count

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
        size = len(subject) + len(header) + len(payload)
        if self._count >= ANSWERS_MAX or self._bytes + size > BYTES_MAX:
            self.dropped += 1
            return
        answer = LateAnswer(now_ms + KEEP_MS, header, payload)
        self.kept.setdefault((account, subject), deque()).append(answer)
        self._count += 1
        self._bytes += size

    def send(self, where: Where, publish: Publish) -> None:
        """Somebody listens to this subject: send what is kept of it, in the order in which it came."""
        for answer in self.kept.pop(where, ()):
            self._let_go(where, answer)
            self.delivered += 1
            publish(*where, b"", answer.header, answer.payload)

    def step(self, has_interest: Callable[[str, bytes], bool], publish: Publish) -> None:
        """Send those for which somebody listens now, and drop those that are overdue."""
        now_ms = self._now_ms()
        for _ in range(min(LOOKS_MAX, len(self.kept))):
            where = next(iter(self.kept))
            if has_interest(*where):
                self.send(where, publish)
                continue
            answers = self.kept.pop(where)
            while answers and now_ms >= answers[0].due_ms:
                self._let_go(where, answers.popleft())
                self.dropped += 1
            if answers:
                self.kept[where] = answers

    def _let_go(self, where: Where, answer: LateAnswer) -> None:
        self._count -= 1
        self._bytes -= len(where[1]) + len(answer.header) + len(answer.payload)
