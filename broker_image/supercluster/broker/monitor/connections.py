"""A broker's clients and their subscriptions, one by one, in NATS's format: CONNZ and SUBSZ under `$SYS.REQ`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any

from supercluster.broker.monitor import views
from supercluster.broker.monitor.broker import Network
from supercluster.broker.monitor.options import Options, WrongOptionsError
from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.routing.router import BROKERS_ACCOUNT
from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.protocol.subjects import matches

Json = dict[str, Any]

PART = 256
"""Subscriptions between two pauses."""
_CLOSED = 1
"""`state` of CONNZ: clients that are gone, which are not remembered."""


class Connections:
    """Of one broker. `now` gives the time as answers have it."""

    def __init__(self, network: Network, now: Callable[[], str]) -> None:
        self._network = network
        self._now = now

    def connz(self, options: Options, account: str = "") -> Json:
        """The clients: all, or those of an account."""
        network = self._network
        wanted = account or options.text("acc")
        sort = _sort_of(options.text("sort"))
        offset, limit = options.page()
        cid, user, subject = options.number("cid"), options.text("user"), options.text("filter_subject")
        state = options.number("state")
        found = [
            client
            for client in network.server.clients.values()
            if client.authenticated and state != _CLOSED and (not wanted or client.account.name == wanted)
        ]
        total = len(found)
        found = [
            client
            for client in found
            if (not cid or client.id == cid) and (not user or client.info.user == user)
        ]
        if sort is not None:
            found.sort(key=sort, reverse=True)
        shown: list[Client] = found[offset : offset + limit] if not subject else []

        def meeting() -> Iterator[Json | None]:
            """Those with such a subscription, of which each may have a hundred thousand."""
            for client in found:
                if len(shown) < offset + limit and (yield from _any_meets(client, subject)):
                    shown.append(client)
            del shown[:offset]
            yield from (self._connection(client, options) for client in shown)

        rows: Any = (self._connection(client, options) for client in shown)
        if subject:
            rows = meeting()
        elif not (options.flag("subscriptions_detail") or options.flag("subscriptions")):
            rows = list(rows)
        return {
            "server_id": network.process_id,
            "now": self._now(),
            "total": total,
            "offset": offset,
            "limit": limit,
            "connections": rows,
            "num_connections": (lambda: len(shown)) if subject else len(shown),
        }

    def _connection(self, client: Client, options: Options) -> Json:
        clock = self._network.clock
        now_ns, now_ms = clock.now_ns(), clock.machine_ms()
        told: Json = {
            "cid": client.id,
            "kind": "Client",
            "type": "websocket" if client.is_websocket else "nats",
            "ip": client.peer[0],
            "port": client.peer[1],
            "start": views.time_of(now_ns - (now_ms - client.started_ms) * 1_000_000),
            "last_activity": views.time_of(now_ns - (now_ms - client.heard_ms) * 1_000_000),
            "uptime": views.span_of(now_ms - client.started_ms),
            "idle": views.span_of(now_ms - client.heard_ms),
            "pending_bytes": client.subscriber.pending_bytes(),
            "in_msgs": client.in_messages,
            "out_msgs": client.subscriber.out_messages,
            "in_bytes": client.in_bytes,
            "out_bytes": client.subscriber.out_bytes,
            "subscriptions": len(client.subscriber.subscriptions),
        }
        named = {"name": client.name, "lang": client.language, "version": client.library_version}
        told |= {name: value for name, value in named.items() if value}
        if client.tls is not None:
            told["tls_version"], told["tls_cipher_suite"] = client.tls
        told |= views.redirect_of(self._network, client)
        if options.flag("auth"):
            told |= {"authorized_user": client.info.user, "account": client.account.name}
            told["name_tag"] = client.account.name
        if options.flag("subscriptions_detail"):
            told["subscriptions_list_detail"] = map(_subscription, _subscriptions(client))
        elif options.flag("subscriptions"):
            told["subscriptions_list"] = (
                each.subject.decode(errors="replace") for each in _subscriptions(client)
            )
        return told

    def subsz(self, options: Options, account: str = "") -> Json:
        """Subscriptions of clients: all, or those of an account."""
        network = self._network
        wanted, test = account or options.text("account"), options.text("test")
        offset, limit = options.page()
        accounts = [
            found
            for name, found in network.router.accounts.items()
            if name != BROKERS_ACCOUNT and (not wanted or name == wanted)
        ]
        told: Json = {
            "server_id": network.process_id,
            "now": self._now(),
            "num_subscriptions": sum(found.sublist.local_count for found in accounts),
            "num_cache": sum(len(found.sublist.cache) for found in accounts),
            "offset": offset,
            "limit": limit,
        }
        if not (account or options.flag("subscriptions") or test):
            return {**told, "total": 0}
        clients = [
            client
            for client in network.server.clients.values()
            if not wanted or client.account.name == wanted
        ]
        count = 0

        def rows() -> Iterator[Json | None]:
            nonlocal count
            for client in clients:
                name = client.account.name
                for number, each in enumerate(_subscriptions(client)):
                    if number % PART == 0:
                        yield None
                    if test and not matches(test.encode(), each.subject):
                        continue
                    if offset <= count < offset + limit:
                        yield {"account": name, "account_tag": name, **_subscription(each)}
                    count += 1

        return {**told, "subscriptions_list": rows(), "total": lambda: count}


def _subscriptions(client: Client) -> Iterator[Subscription]:
    """As they are now: some may come and go while they are told."""
    return iter(list(client.subscriber.subscriptions.values()))


def _any_meets(client: Client, subject: str) -> Generator[None, None, bool]:
    for number, each in enumerate(_subscriptions(client)):
        if number % PART == 0:
            yield None
        if _meets(each, subject):
            return True
    return False


def _subscription(found: Subscription) -> Json:
    told: Json = {"subject": found.subject.decode(errors="replace")}
    if found.queue:
        told["qgroup"] = found.queue.decode(errors="replace")
    told |= {"sid": found.sid.decode(errors="replace"), "msgs": found.delivered}
    if found.max_messages:
        told["max"] = found.max_messages
    return {**told, "cid": found.subscriber.id}


def _meets(found: Subscription, subject: str) -> bool:
    return matches(subject.encode(), found.subject)


_SORTS: Mapping[str, Callable[[Client], Any] | None] = {
    "": None,
    "cid": None,
    "start": None,
    "subs": lambda client: len(client.subscriber.subscriptions),
    "pending": lambda client: client.subscriber.pending_bytes(),
    "msgs_to": lambda client: client.subscriber.out_messages,
    "msgs_from": lambda client: client.in_messages,
    "bytes_to": lambda client: client.subscriber.out_bytes,
    "bytes_from": lambda client: client.in_bytes,
    "last": lambda client: client.heard_ms,
    "idle": lambda client: -client.heard_ms,
    "uptime": lambda client: -client.started_ms,
}
"""Greatest first; without one, in the order in which they came."""


def _sort_of(name: str) -> Callable[[Client], Any] | None:
    if name not in _SORTS:
        raise WrongOptionsError(f"invalid sorting option: {name}", 500)
    return _SORTS[name]
