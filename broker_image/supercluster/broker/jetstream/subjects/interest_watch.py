"""Push consumers that wait for a subscriber of their deliver subject; their leader delivers while there is
one.

The network reports subscriptions that came or went, here and at linked brokers. The consumers are found by
subject, without visiting all of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator

from supercluster.broker.protocol.subjects import has_wildcard, matches

Changed = Callable[[], None]
Key = tuple[str, str]
"""Group and consumer."""


class _Watched:
    """The subjects of one account."""

    def __init__(self) -> None:
        self.by_subject: dict[bytes, dict[Key, Changed]] = {}
        self.sorted: list[bytes] = []

    def matching(self, pattern: bytes) -> Iterator[bytes]:
        """Those that a subscription to `pattern` is about: only subjects that begin as it does are looked at."""
        if not has_wildcard(pattern):
            if pattern in self.by_subject:
                yield pattern
            return
        beginning = _literal_beginning(pattern)
        for at in range(bisect_left(self.sorted, beginning), len(self.sorted)):
            subject = self.sorted[at]
            if not subject.startswith(beginning):
                return
            if matches(subject, pattern):
                yield subject


class InterestWatch:
    def __init__(self) -> None:
        self._accounts: dict[str, _Watched] = {}

    def watch(self, account: str, subject: bytes, key: Key, changed: Changed) -> None:
        """`changed` is called whenever subscriptions to `subject` came or went."""
        watched = self._accounts.setdefault(account, _Watched())
        if subject not in watched.by_subject:
            watched.by_subject[subject] = {}
            insort(watched.sorted, subject)
        watched.by_subject[subject][key] = changed

    def forget(self, account: str, subject: bytes, key: Key) -> None:
        """It is not waited for any more."""
        watched = self._accounts.get(account)
        waiting = watched.by_subject.get(subject) if watched is not None else None
        if watched is None or waiting is None:
            return
        waiting.pop(key, None)
        if not waiting:
            del watched.by_subject[subject]
            del watched.sorted[bisect_left(watched.sorted, subject)]
        if not watched.by_subject:
            del self._accounts[account]

    def changed(self, account: str, pattern: bytes) -> None:
        """A subscription to `pattern` came or went."""
        watched = self._accounts.get(account)
        if watched is None:
            return
        for subject in list(watched.matching(pattern)):
            for call in list(watched.by_subject.get(subject, {}).values()):
                call()


def _literal_beginning(pattern: bytes) -> bytes:
    """What every subject begins with that the pattern matches."""
    tokens = pattern.split(b".")
    wild = next(at for at, token in enumerate(tokens) if token in (b"*", b">"))
    return b"".join(token + b"." for token in tokens[:wild])
