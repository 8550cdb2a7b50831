"""The number of API calls that a broker has answered since it started, account by account."""

from __future__ import annotations

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.node.pending_requests import DIRECT_PREFIX, PULL_PREFIX

COUNTED_MAX = 4096
"""Accounts whose calls are counted."""


class ApiCounts:
    def __init__(self) -> None:
        self._calls: dict[str, int] = {}
        self._errors: dict[str, int] = {}

    def answered(self, account: str, subject: bytes, answer: bytes) -> None:
        """A client of this broker is answered. Pulls and direct gets are traffic, and count nowhere."""
        if subject.startswith((PULL_PREFIX, DIRECT_PREFIX)):
            return
        if account not in self._calls and len(self._calls) >= COUNTED_MAX:
            return
        self._calls[account] = self._calls.get(account, 0) + 1
        if answers.is_error(answer):
            self._errors[account] = self._errors.get(account, 0) + 1

    def of(self, account: str) -> tuple[int, int]:
        """Calls of the account that were answered here, and how many of them by an error."""
        return self._calls.get(account, 0), self._errors.get(account, 0)

    def by_account(self) -> dict[str, tuple[int, int]]:
        """By account: calls that were answered here, and how many of them by an error."""
        return {account: self.of(account) for account in self._calls}
