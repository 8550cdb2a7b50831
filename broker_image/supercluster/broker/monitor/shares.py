"""The share of each caller in the answers under `$SYS.REQ`, so that no caller uses up the others' answers.

Users with the system role have one share, and each account has another. An account's first few requests of a
second are always answered. Above these, all accounts together have a bound too, since many of them could
otherwise keep the broker from its work. Requests beyond it get an error, and beyond twice the bound they are
dropped silently: an error is an answer too, and costs time. No I/O: the caller passes in the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

SYSTEM = ""
"""The asker's name that stands for users with the system role, whatever their account is called."""

SYSTEM_PER_S_MAX = 500
"""Watching over a broker keeps it from no work."""

ACCOUNT_PER_S_MAX = 50
"""Ten people who look at their connections five times a second."""

ACCOUNTS_PER_S_MAX = 500
"""Of all accounts, beyond the first few of each."""

FIRST_PER_S = 5
"""So many of an account are answered even when the others have asked for all there is."""

ACCOUNTS_MAX = 256
"""Accounts with a share of their own in one second; those that come after them have one together."""

_REST = " rest"
"""No account's name begins with a space."""


class Verdict(Enum):
    """What becomes of a request."""

    ANSWER = "answer"
    REFUSE = "refuse"
    DROP = "drop"


@dataclass(slots=True)
class _Second:
    number: int
    asked: dict[str, int]
    extra: int = 0
    """Answers to accounts beyond the first few of each."""


class Shares:
    def __init__(self) -> None:
        self._second = _Second(-1, {})

    def __len__(self) -> int:
        """Askers that are remembered."""
        return len(self._second.asked)

    def judge(self, asker: str, now_ms: int) -> Verdict:
        """Count a request of `asker` (an account's name, or `SYSTEM`) at that time on the monotonic clock."""
        number = now_ms // 1000
        if number != self._second.number:
            self._second = _Second(number, {})
        second = self._second
        if asker not in second.asked and asker != SYSTEM and len(second.asked) >= ACCOUNTS_MAX:
            asker = _REST
        count = second.asked[asker] = second.asked.get(asker, 0) + 1
        most = SYSTEM_PER_S_MAX if asker == SYSTEM else ACCOUNT_PER_S_MAX
        if count > 2 * most:
            return Verdict.DROP
        if count > most:
            return Verdict.REFUSE
        if asker != SYSTEM and count > FIRST_PER_S:
            if second.extra >= ACCOUNTS_PER_S_MAX:
                return Verdict.REFUSE
            second.extra += 1
        return Verdict.ANSWER
