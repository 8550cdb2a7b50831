"""Messages that go from one account to another, by the imports that a book declares (`protocol/imports.py`).

An account's import of a stream is a subscription in the exporting account (`Shadow`), which brokers announce
like any other. So a message crosses links by the exporting account's interest, and gets its importing name
where it is delivered. A request to an imported service is made there by the client's broker (`passage.py`),
with a reply subject of this broker's, at which the answers arrive (`cross_account_replies.py`). Messages of
an account without imports pay nothing for it: a subject's route is looked up once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from supercluster.broker.bounds import TEXT_BYTES_MAX
from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.client_writes import put
from supercluster.broker.net.routing.origin import Origin
from supercluster.broker.net.routing.passage import Passage, Route
from supercluster.broker.net.routing.router import Router
from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.protocol import headers
from supercluster.broker.protocol.imports import (
    AccountBook,
    AccountSpec,
    Destination,
    ServiceImport,
    StreamImport,
    SubjectMapping,
)
from supercluster.broker.protocol.parser import Message
from supercluster.broker.protocol.renaming import intersection
from supercluster.broker.protocol.subjects import matches
from supercluster.broker.protocol.sublist import CACHE_ENTRIES_MAX, Match

REQUEST_INFO = b"Nats-Request-Info"


class Shadow(Subscription):
    """A client's subscription, as it is in an account that it hears of by an import."""

    __slots__ = ("_naming", "_turn", "real")

    def __init__(self, router: Router, real: Subscription, subject: bytes, imported: StreamImport) -> None:
        super().__init__(real.subscriber, subject, real.queue, real.sid)
        self.real = real
        self._turn = router.turn
        self._naming = imported.naming
        self.interceptor = self._pass_on

    def receiver(self) -> Subscription:
        return self.real

    def _pass_on(self, message: Message) -> None:
        subject, reply, header, payload = message
        named = subject if self._naming.is_same else self._naming.inward(subject)
        put(self._turn, self.real, (named, reply, header, payload))


def _capture(account: Account, subject: bytes, window: Any, origin: Origin, message: Message) -> bool:
    """A stream of another account captures the subject, by what that account imports."""
    origin.in_account(account).take(window, (subject, *message[1:]))
    return True


class Service:
    """An import that the subject is asked by."""

    def __init__(self, router: Router, home: Account, there: Account, imported: ServiceImport) -> None:
        self._router = router
        self._home = home
        self._there = there
        self._import = imported
        self._export = router.declared_accounts.export_for(home.name, imported)

    def pass_on(self, origin: Origin, message: Message) -> bool:
        subject, reply, header, payload = message
        naming = self._import.naming
        there = subject if naming.is_same else naming.outward(subject)
        if len(there) > TEXT_BYTES_MAX:
            return False  # No link and no log has room for such a name, so nobody can be asked by it.
        foreign = origin.in_account(self._there)
        if reply:
            asker = foreign.client.account.name
            reply = self._router.replies.open(self._there, self._home.name, asker, reply, self._export)
        # A stream stores the message as it was sent; who asks is for a responder.
        told = headers.with_value(header, REQUEST_INFO, self._asker(origin))
        reached = self._router.pass_on(
            foreign, (there, reply, told, payload), (there, reply, header, payload)
        )
        if reply and not reached:
            self._router.replies.end(self._there.name, reply)
        return reached

    def _asker(self, origin: Origin) -> bytes:
        """What the responder is told of who asks."""
        client = origin.client
        told: dict[str, Any] = {"acc": client.account.name}
        if client.account is not self._home:
            told["svc"] = self._home.name
        if self._import.shares:
            told |= client.described()
        return json.dumps(told, separators=(",", ":")).encode()


class Mapped:
    """A mapping of the account's own: the subject is called otherwise."""

    def __init__(self, router: Router, account: Account, mapping: SubjectMapping) -> None:
        self._router = router
        self._account = account
        self._destinations = mapping.destinations

    def pass_on(self, origin: Origin, message: Message) -> bool:
        """A client's permissions are about the name that its message gets: else a mapping would lead round what is denied, and
        not to what is allowed. Who may not publish there is told so, and not that nobody is there."""
        drawn = self._router.draw() * 100
        renamed = (self._named(message[0], drawn), *message[1:])
        if not origin.client.may_publish_mapped(renamed[0]):
            return True
        return self._router.pass_on(origin.in_account(self._account), renamed, renamed)

    def _named(self, subject: bytes, drawn: float) -> bytes:
        for destination in self._destinations:
            drawn -= destination.percent
            if drawn < 0:
                return self._transformed(destination, subject)
        return subject

    def _transformed(self, destination: Destination, subject: bytes) -> bytes:
        number = int(self._router.draw() * (1 << 31)) if destination.transform.is_random else 0
        return destination.transform.apply(subject, number) or subject


class AccountRoutes:
    """What an account's book entry means here."""

    def __init__(self, router: Router, account: Account, spec: AccountSpec) -> None:
        self._router = router
        self._account = account
        self._mappings = spec.mappings
        self._listeners = router.declared_accounts.listeners.get(spec.name, ())
        self._mapped: dict[bytes, Match[Subscription]] = {}
        self._services = [
            (one.naming.here, Service(router, account, router.account(one.account), one).pass_on)
            for one in spec.services
        ]

    @property
    def is_empty(self) -> bool:
        return not (self._mappings or self._listeners or self._services)

    @property
    def maps(self) -> bool:
        return bool(self._mappings)

    def mapping_of(self, subject: bytes) -> Match[Subscription] | None:
        if not self._mappings:
            return None
        known = self._mapped.get(subject)
        if known is not None:
            return known
        found = next((one for one in self._mappings if matches(subject, one.subject)), None)
        if found is None:
            return None
        match: Match[Subscription] = Match([], set(), [])
        match.window = None
        mapped = Mapped(self._router, self._account, found)
        match.window = Passage(match, [mapped.pass_on], self._router.no_responders.undelivered)
        if len(self._mapped) >= CACHE_ENTRIES_MAX:
            self._mapped.clear()
        self._mapped[subject] = match
        return match

    def extended(self, subject: bytes, match: Match[Subscription]) -> Match[Subscription]:
        return self._with(match, self._asked(subject), self._captures(subject))

    def asked(self, subject: bytes, match: Match[Subscription]) -> Match[Subscription]:
        return self._with(match, self._asked(subject), [])

    def _asked(self, subject: bytes) -> list[Route]:
        return [service for here, service in self._services if matches(subject, here)]

    def _with(
        self, match: Match[Subscription], asked: list[Route], captures: list[Route]
    ) -> Match[Subscription]:
        routes = [*asked, *captures]
        if not routes:
            return match
        # Who imports the API asks there, and not here.
        router = self._router
        api = router.call_api if match.is_api and not asked else None
        passage = Passage(match, routes, router.no_responders.undelivered, api)
        wider = Match(match.plain, set(match.nodes), match.groups)
        wider.window = passage
        return wider

    def _captures(self, subject: bytes) -> list[Route]:
        found: list[Route] = []
        for name, imported in self._listeners:
            if not matches(subject, imported.naming.there):
                continue
            named = imported.naming.inward(subject)
            window = self._router.captured(name, named) if len(named) <= TEXT_BYTES_MAX else None
            if window is not None:
                found.append(partial(_capture, self._router.account(name), named, window))
        return found


class AccountImports:
    """All that leads from account to account on this broker."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._streams: dict[str, Sequence[StreamImport]] = {}
        """What each account hears of others."""
        self._shadows: dict[Subscription, list[tuple[Account, Shadow]]] = {}

    def declare(self, declared: AccountBook, present: Iterable[tuple[Account, Subscription]]) -> None:
        """What accounts import and export from now on; `present` are the subscriptions of all clients."""
        router = self._router
        router.declared_accounts = declared
        router.imports = self
        for subscription in list(self._shadows):
            self.unsubscribed(subscription)
        for account in router.accounts.values():
            account.cross_account = None
        self._streams = {spec.name: spec.streams for spec in declared.accounts.values() if spec.streams}
        for spec in declared.accounts.values():
            account = router.account(spec.name)
            routes = AccountRoutes(router, account, spec)
            account.cross_account = None if routes.is_empty else routes
        for account, subscription in present:
            self.subscribed(account, subscription)
        router.accounts_changed()

    def subscribed(self, account: Account, subscription: Subscription) -> None:
        """A client subscribed: it hears of other accounts as well, where they are imported from."""
        shadows: list[tuple[Account, Shadow]] = []
        for imported in self._streams.get(account.name, ()):
            named = intersection(subscription.subject, imported.naming.here)
            if named is None:
                continue
            there = self._router.account(imported.account)
            shadow = Shadow(self._router, subscription, imported.naming.outward(named), imported)
            shadows.append((there, shadow))
            self._router.join(there, shadow)
        if shadows:
            self._shadows[subscription] = shadows

    def unsubscribed(self, subscription: Subscription) -> None:
        """It ended."""
        for there, shadow in self._shadows.pop(subscription, ()):
            self._router.leave(there, shadow)
