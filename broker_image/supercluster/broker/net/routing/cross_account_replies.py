"""Answers to requests in another account: `_R_.<broker>.<number>` there stands for the caller's own reply
subject here.

Each broker has one subscription for all of them in an account that it has sent requests to, so brokers
announce it once. A request to a service with one response is forgotten with the answer. A request with
several responses is forgotten at an empty one, or when none came within the service's threshold. Beyond the
bound, the oldest one of the account with the most is dropped, so an account with too many requests ends only
its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.subscriber import Subscriber, Subscription
from supercluster.broker.protocol.imports import SINGLETON, Export
from supercluster.broker.protocol.parser import Message
from supercluster.broker.protocol.subjects import REPLY_PREFIX

REPLIES_MAX = 65_536
"""Of all accounts together."""

SWEEP_MS = 5000
"""How often those are looked for that nobody answers any more."""


@dataclass(slots=True)
class _Asked:
    """A request that may be answered."""

    there: str
    """The account that was asked."""
    home: str
    asker: str
    """The account of the client that asked: `home`, unless that passed on what it was asked itself."""
    reply: bytes
    export: Export
    heard_ms: int


class Nobody:
    """The connection of a subscription that no client has."""

    def write(self, data: bytes) -> None:
        """Nothing is ever written."""

    def unsent_bytes(self) -> int:
        return 0

    def unsubscribed(self, subscription: Subscription) -> None:
        """It never ends."""


class Replies:
    """See the module. By `join` and `publish` answers come and go; `token` gives a text that nobody guesses."""

    def __init__(
        self,
        join: Callable[[Account, Subscription], None],
        publish: Callable[[str, bytes, bytes, bytes, bytes], None],
        now_ms: Callable[[], int],
        token: Callable[[], str],
    ) -> None:
        self._join = join
        self._publish = publish
        self._now_ms = now_ms
        self._token = token
        self._prefix = b"%b%b." % (REPLY_PREFIX, token().encode())
        self._asked: dict[bytes, _Asked] = {}
        self._of: dict[str, OrderedDict[bytes, None]] = {}
        """Askers' account → its requests, the oldest first."""
        self._listening: set[str] = set()
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._asked)

    def open(self, there: Account, home: str, asker: str, reply: bytes, export: Export) -> bytes:
        """The subject that an answer from `there` to the reply subject `reply` of account `home` is sent to, for a client of
        account `asker`."""
        now_ms = self._now_ms()
        if there.name not in self._listening:
            self._listening.add(there.name)
            self._listen(there)
        if now_ms - self._swept_ms >= SWEEP_MS:
            self._sweep(now_ms)
        if len(self._asked) >= REPLIES_MAX:
            most = max(self._of, key=lambda name: len(self._of[name]))
            self._forget(next(iter(self._of[most])))
        subject = self._prefix + self._token().encode()
        self._asked[subject] = _Asked(there.name, home, asker, reply, export, now_ms)
        self._of.setdefault(asker, OrderedDict())[subject] = None
        return subject

    def resolve(self, account: str, subject: bytes) -> tuple[str, bytes] | None:
        """(account, subject) that an answer goes to; None: it is not known here, or no more."""
        found = self._asked.get(subject)
        if found is None or found.there != account:
            return None
        found.heard_ms = self._now_ms()
        return found.home, found.reply

    def end(self, account: str, subject: bytes) -> tuple[str, bytes] | None:
        """Nobody will answer it. As `resolve`."""
        target = self.resolve(account, subject)
        if target is not None:
            self._forget(subject)
        return target

    def _forget(self, subject: bytes) -> None:
        asker = self._asked.pop(subject).asker
        left = self._of[asker]
        del left[subject]
        if not left:
            del self._of[asker]

    def _listen(self, there: Account) -> None:
        subscriber = Subscriber(Nobody())
        subscription = subscriber.subscriptions[b""] = Subscription(subscriber, self._prefix + b"*", b"", b"")
        subscription.interceptor = lambda message: self._answered(there.name, message)
        self._join(there, subscription)

    def _answered(self, there: str, message: Message) -> None:
        subject, reply, header, payload = message
        target = self.resolve(there, subject)
        if target is None:
            return
        kind = self._asked[subject].export.response
        if kind == SINGLETON or not (payload or header):
            self._forget(subject)
        self._publish(*target, reply, header, payload)

    def _sweep(self, now_ms: int) -> None:
        self._swept_ms = now_ms
        for subject, asked in list(self._asked.items()):
            if now_ms - asked.heard_ms > asked.export.threshold_ms:
                self._forget(subject)
