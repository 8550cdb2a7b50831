"""Carries out the decisions of `redirect/`: INFO that names green, connections that are asked to leave,
delayed PONGs.

It costs nothing while there are no orders. Other modules handle frames: they pass in the reports of far
brokers, and send its own through `tell_unsettled` and `tell_users` (bodies in `protocol/redirect_words.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.partings import HUSH_MS, Asked, Partings, answered_for
from supercluster.broker.net.clients.redirect.crossings import Crossings
from supercluster.broker.net.clients.redirect.facts import Facts, Likeness, User
from supercluster.broker.net.clients.redirect.heard import Heard
from supercluster.broker.net.clients.redirect.held_pongs import HeldPongs
from supercluster.broker.net.clients.redirect.orders import NoOrders, Order, RedirectOrders
from supercluster.broker.net.clients.redirect.redirects import Activity, Redirects, State, Verdict
from supercluster.broker.net.clients.redirect.report import counted, publishing, report
from supercluster.broker.net.routing.origin import ForeignOrigin
from supercluster.broker.ports import Publisher
from supercluster.broker.protocol.client_reports import AccountClients
from supercluster.broker.protocol.redirect_words import Closing

log = logging.getLogger(__name__)

STEP_S = 0.1
BUSY_STEP_S = 0.02
"""While connections part, or PONGs are held."""

OVERDUE_MS = 250
"""A verdict takes this long when the link with green is cut, or behind that; a fence takes less."""

UNSETTLED_EVERY_MS = 200
"""How often it is said again what is unsettled."""


class Redirection:
    """Of one broker, which is blue's, green's, or neither's. Implements `client.Redirecting`."""

    def __init__(self, server: ClientServer, awaiting: Asked, unsettled: Asked, overdue: Asked) -> None:
        """`overdue`: whose publishes have had no verdict for `OVERDUE_MS`."""
        self._server = server
        self._clock = server.clock
        self._awaiting = awaiting
        self._overdue = overdue
        self.redirects = Redirects(NoOrders())
        self.partings = Partings(server, awaiting, unsettled)
        self.heard = Heard()
        self.pongs = HeldPongs(lambda account: self.heard.closing(account, self._clock.monotonic_ms()))
        self.tell_unsettled: Callable[[Collection[Closing]], None] = lambda connections: None
        """Blue: these may have something unsettled; none: it is over."""
        self.tell_users: Callable[[Collection[User]], None] = lambda users: None
        """Green: these users have come."""
        self.tell_parting: Callable[[str, str], None] = lambda account, address: None
        """Blue: a client of this account is about to be sent away, to the other brokers of blue: account, address."""
        self.crossings = Crossings()
        self.waiting_for_green: Callable[[], Iterable[tuple[str, str, Iterable[Publisher]]]] = tuple
        """Account and name of each stream that is being handed over, with who published what waits for it."""
        self._users: dict[User, int] = {}
        """Connections of each user."""
        self._traffic: dict[int, tuple[int, int]] = {}
        """Connection → bytes read from it and messages sent to it when it was looked at."""
        self._said: frozenset[Closing] = frozenset()
        self._said_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._leavers: asyncio.Handle | None = None

    # Orders, and what far brokers say

    def set_orders(self, orders: RedirectOrders) -> None:
        """These hold from now on."""
        self.redirects.orders = orders
        self.orders_changed()

    def orders_changed(self) -> None:
        """Some order is another one now: take in who is in scope, and tell all of them by INFO."""
        now_ms = self._clock.monotonic_ms()
        before = set(self.redirects.tracked)
        for client in self._server.clients.values():
            if client.has_come and not client.closed and client.id not in self.partings:
                self.redirects.adopt(facts_of(client), now_ms)
        self.redirects.orders_changed()
        for number in (before | set(self.redirects.tracked)) & set(self._server.clients):
            if number not in self.partings:
                self._server.clients[number].owe_info()
        self._wake()

    def users_reported(self, world: str, users: Collection[User]) -> None:
        """Blue: a broker of green, of that world, says that these are connected there."""
        for user in users:
            self.redirects.reported(world, user, self._clock.monotonic_ms())

    def parting_told(self, account: str, address: str) -> None:
        """Blue: another broker of blue is about to send such a client away, at the latest when it has waited for its answers."""
        self.redirects.left(account, address, self._clock.monotonic_ms() + HUSH_MS)

    def unsettled_told(self, node: str, connections: Collection[Closing]) -> None:
        """Green: a broker of blue says that these of its connections may have unsettled publishes."""
        self.heard.told(node, connections, self._clock.monotonic_ms())

    def passed_on(self, account: str, stream: str, publishers: Iterable[Publisher]) -> None:
        """Blue: these published each message for a stream that green has."""
        self.crossings.add(account, stream, self._connections(publishers))

    @property
    def users(self) -> Collection[User]:
        """Green: whoever is connected here, for a link that has just come up."""
        return self._users

    # What `ClientServer` asks and says

    def urls(self, client: Client) -> list[str] | None:
        """See `client.Redirecting`."""
        order = self._order_of(client)
        return order.urls_for(is_tls=client.uses_tls) if order is not None else None

    def turns_away(self, client: Client) -> bool:
        """See `client.Redirecting`."""
        return self.redirects.turns_away(str(client.peer[0]), self._clock.monotonic_ms())

    def came(self, client: Client) -> bool:
        """See `client.Redirecting`."""
        facts, now_ms = facts_of(client), self._clock.monotonic_ms()
        verdict = self.redirects.came(facts, now_ms)
        if verdict is Verdict.REFUSE:
            client.reset("it is to go to another super-cluster")
            return False
        count = self._users[facts.user] = self._users.get(facts.user, 0) + 1
        if count == 1:
            self.tell_users([facts.user])
        if client.id in self.redirects.tracked or self.redirects.orders.order_for_all() is not None:
            client.owe_info()
            self._wake()
        return True

    def holds_pong(self, client: Client) -> bool:
        """See `client.Redirecting`."""
        holds = self.pongs.hold(client.id, client.account.name, self._clock.monotonic_ms())
        if holds:
            self._wake()
        return holds

    def ponged(self, client: Client) -> None:
        """See `client.Redirecting`."""
        tracked = self.redirects.tracked.get(client.id)
        if tracked is not None and tracked.is_asked and client.id not in self.partings:
            self._part(client, 0)

    def went(self, client: Client) -> None:
        """See `client.Redirecting`."""
        self.pongs.went(client.id)
        self.crossings.went(client.id)
        self._traffic.pop(client.id, None)
        if client.id in self.redirects.tracked or client.id in self.partings:
            self.partings.left(client, self._clock.monotonic_ms())
            if self._leavers is None:
                self._leavers = self._server.loop.call_soon(self._look_at_leavers)
        self.redirects.went(client.id, self._clock.monotonic_ms())
        if client.has_come:
            user = facts_of(client).user
            self._users[user] = self._users.get(user, 1) - 1
            if self._users[user] <= 0:
                del self._users[user]

    def close(self) -> None:
        """The process ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._leavers is not None:
            self._leavers.cancel()

    # Time

    def _wake(self) -> None:
        is_busy = bool(len(self.partings) or len(self.pongs) or len(self._server.router.late_answers))
        if is_busy and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and (is_busy or self.redirects.tracked or self._said):
            self._timer = self._server.loop.call_later(BUSY_STEP_S if is_busy else STEP_S, self._step)

    def _step(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        self.partings.step(now_ms)
        router = self._server.router
        router.late_answers.step(router.has_interest, router.publish)
        for number in self.pongs.release(now_ms):
            if (client := self._server.clients.get(number)) is not None:
                client.send_pongs()
        activity = self._activity()
        for number in self.redirects.step(now_ms, lambda number: activity.get(number, Activity.UNSETTLED)):
            if (client := self._server.clients.get(number)) is not None:
                self._part(client, self._server.limits.lame_duck_grace_ms)
        self._tell_unsettled(now_ms)
        self._server.turn.want()
        self._wake()

    def _look_at_leavers(self) -> None:
        """At once, since nothing holds them up on their way to green; for all that left in this turn of the loop together."""
        self._leavers = None
        now_ms = self._clock.monotonic_ms()
        self.partings.step(now_ms)
        self._tell_unsettled(now_ms)
        self._wake()

    def _part(self, client: Client, grace_ms: int) -> None:
        """Tell the client where to go, and have it go (rule 19)."""
        log.info("client %d (%s) is asked to go to another super-cluster", client.id, client.name)
        self._server.tell_to_leave(client)
        self._server.router.late_answers.expect(client.account.name)
        self.tell_parting(client.account.name, str(client.peer[0]))
        self.partings.begin(client, grace_ms, self._clock.monotonic_ms())
        self._wake()

    def _tell_unsettled(self, now_ms: int) -> None:
        """A step before FIN is sent, so that green knows before the client is there."""
        closing = self.partings.closing(now_ms)
        if closing != self._said or (closing and now_ms - self._said_ms >= UNSETTLED_EVERY_MS):
            self._said, self._said_ms = closing, now_ms
            self.tell_unsettled(closing)

    def _activity(self) -> dict[int, Activity]:
        """Of those that the next step looks at."""
        clients = [
            client
            for number in self.redirects.next_looks()
            if (client := self._server.clients.get(number)) is not None and not client.closed
        ]
        behind = {client: client.foreign.values() for client in clients}
        awaiting, overdue = answered_for(behind, self._awaiting), answered_for(behind, self._overdue)
        found: dict[int, Activity] = {}
        for client in clients:
            traffic = (client.read_bytes, client.subscriber.out_messages)
            before = self._traffic.get(client.id)
            self._traffic[client.id] = traffic
            if client in overdue or client.is_stalled or client.has_input:
                found[client.id] = Activity.OVERDUE
            elif client in awaiting or client.is_owed or not client.has_ponged:
                found[client.id] = Activity.UNSETTLED
            else:
                found[client.id] = Activity.QUIET if traffic == before else Activity.ACTIVE
        return found

    def _order_of(self, client: Client) -> Order | None:
        """With one account in scope, nobody is told before CONNECT; who stays on blue is told of blue."""
        if not client.has_come and not client.authenticated:
            return self.redirects.orders.order_for_all()
        return None if is_internal(client) else self.redirects.orders.order_of(client.account.name)

    # What is shown

    def report(self) -> dict[str, Any]:
        """All of it, for `/admin/redirects`."""
        crossings = self.crossings.with_waiting(self._waiting())
        publishers = (
            row
            for client in self._followers()
            for _, row in publishing(client.account.name, client, crossings.get(client.id, {}))
        )
        return report(self.redirects, self.crossings.total, publishers) | {
            "parting": len(self.partings),
            "cutOff": self.partings.cut_off,
            "pongsHeld": self.pongs.held_total,
            "orderNotKept": self.pongs.not_kept_total,
        }

    @property
    def figures(self) -> dict[str, int]:
        """For /varz and /metrics."""
        counts, tracked = self.redirects.counts, self.redirects.tracked.values()
        states = Counter(self.redirects.shown_state(found) for found in tracked)
        return {
            "redirects_waiting": states[State.WAITING] + states[State.RETURNED],
            "redirects_bridged": states[State.BRIDGED],
            "redirects_asked": counts["asked"],
            "redirects_returned": counts["returned"],
            "redirects_refused": counts["refused"],
            "redirects_cut_off": self.partings.cut_off,
            "pongs_held": self.pongs.held_total,
            "order_not_kept": self.pongs.not_kept_total,
        }

    def described(self, client: Client) -> dict[str, Any]:
        """What /connz shows of it; empty: it is not in scope."""
        tracked = self.redirects.tracked.get(client.id)
        if tracked is None:
            return {}
        told: dict[str, Any] = {
            "state": self.redirects.shown_state(tracked).value,
            "reach": self.redirects.reach(tracked).value,
            "asks": tracked.asks,
            "published": self.crossings.messages_of(client.id),
        }
        if why := self.redirects.why(tracked):
            told["why"] = why
        return told

    def counted(self) -> dict[str, AccountClients]:
        """By account, what the other brokers of this super-cluster are told: with or without orders."""
        connections = ((client.account.name, client) for client in self._followers())
        return counted(self.redirects, connections, self.crossings.with_waiting(self._waiting()))

    def _followers(self) -> Iterator[Client]:
        """All that may be asked to follow their streams one day."""
        for client in self._server.clients.values():
            if client.has_come and not client.closed and not is_internal(client):
                yield client

    def _waiting(self) -> Iterator[tuple[str, str, Iterator[int]]]:
        for account, stream, publishers in self.waiting_for_green():
            yield account, stream, self._connections(publishers)

    def _connections(self, publishers: Iterable[Publisher]) -> Iterator[int]:
        """Those of clients that are here: a client that is gone leaves messages, and streams publish to each other."""
        for publisher in publishers:
            if isinstance(publisher, Client | ForeignOrigin):
                number = publisher.client.subscriber.id
                if number in self._server.clients:
                    yield number


def is_internal(client: Client) -> bool:
    """Is it the operator's, or the system's (BG-8)? Where no credentials are asked for, nobody is known to be."""
    return client.info.is_system or (client.credential is not None and client.info.is_operator)


def facts_of(client: Client) -> Facts:
    """What is known of a client behind its CONNECT."""
    user = User(client.account.name, client.info.user)
    return Facts(
        client.id,
        Likeness(user, client.name, client.language, str(client.peer[0])),
        version=client.library_version,
        is_websocket=client.is_websocket,
        is_tls=client.uses_tls,
        takes_info=client.wants_info,
        is_internal=is_internal(client),
    )
