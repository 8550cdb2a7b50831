"""Read-only requests about large streams that take several turns: one of each account runs at a time, the
others queue.

A request is a job (`turn/slices.py`). Its first slice runs at once while the turn has time for it, so most
requests are answered immediately. An account with many requests waits for its own: the rest of the broker
gives all accounts the same share.
"""

from __future__ import annotations

from collections import deque

from supercluster.broker.jetstream.turn.slices import UNITS_PER_TURN, Job, JobOwner, Slices

LEAST_UNITS = 50
"""Of a question that is answered at once."""
LINE_MAX = 1024
"""Questions of one account that wait; more are answered in a later try of who asked."""


class Questions:
    """See the module. One per broker."""

    def __init__(self, slices: Slices) -> None:
        self._slices = slices
        self._lines: dict[str, deque[tuple[JobOwner, Job]]] = {}
        """By account: what waits behind the question that is under way."""
        self._units_left = UNITS_PER_TURN

    def renew(self) -> None:
        """Another turn."""
        self._units_left = UNITS_PER_TURN

    def ask(self, account: str, owner: JobOwner, question: Job) -> bool:
        """Have a question answered. False: too many of the account wait.

        Raises:
            Exception: what the first slice raises.
        """
        line = self._lines.get(account)
        if line is not None:
            if len(line) >= LINE_MAX:
                return False
            line.append((owner, question))
            return True
        if self._units_left > 0:
            units = next(question, None)
            self._units_left -= units or LEAST_UNITS
            if units is None:
                return True
        self._lines[account] = deque()
        self._begin(account, owner, question)
        return True

    def _begin(self, account: str, owner: JobOwner, question: Job) -> None:
        job = self._watched(account, question)
        next(job)  # From here on its end is noticed, also when it is closed.
        self._slices.begin(owner, job)

    def _watched(self, account: str, question: Job) -> Job:
        try:
            yield 0
            yield from question
        finally:
            line = self._lines[account]
            if line:
                self._begin(account, *line.popleft())
            else:
                del self._lines[account]
