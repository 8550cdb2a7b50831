"""The documents under `$SYS.REQ` in NATS's format, which `nats server` and `nats account` read.

They contain only facts that this broker knows; fields of NATS that have no meaning here are omitted.
`connections.py` has the clients one by one.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from supercluster.broker.jetstream.admin.totals import Held, Totals
from supercluster.broker.jetstream.config.api_level import LEVEL
from supercluster.broker.monitor import health, varz, views
from supercluster.broker.monitor.broker import Broker
from supercluster.broker.monitor.connections import Connections
from supercluster.broker.monitor.options import Options, WrongOptionsError
from supercluster.broker.monitor.slices import LongAnswers
from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.clients.client_server import Traffic
from supercluster.broker.net.links.link import Link
from supercluster.broker.net.routing.router import BROKERS_ACCOUNT
from supercluster.broker.version import NATS_VERSION

Json = dict[str, Any]

_JETSTREAM = 1
"""The flag of a server that has JetStream."""


class SystemDocuments:
    """Of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.long_answers = LongAnswers(broker.clock)
        self.connections: Connections = Connections(broker, self.now)
        self.page_requests: Counter[str] = Counter()
        """Of the monitoring port, by page."""
        self._seq = 0
        self._cpu_at = (broker.clock.machine_ms(), 0.0)
        self._cpu = 0.0

    # ---- the broker -----------------------------------------------------------------------------------------------

    def server(self) -> Json:
        """The block that every answer and event has."""
        broker = self._broker
        self._seq += 1
        told: Json = {
            "name": broker.place.name,
            "host": broker.place.host,
            "id": broker.process_id,
            "cluster": broker.settings.cluster,
            "ver": NATS_VERSION,
            "jetstream": broker.core is not None,
            "flags": _JETSTREAM if broker.core is not None else 0,
            "seq": self._seq,
            "time": self.now(),
        }
        if broker.settings.tags:
            told["tags"] = list(broker.settings.tags)
        return told

    def now(self) -> str:
        """As events and answers have it."""
        return views.time_of(self._broker.clock.now_ns())

    def idz(self) -> Json:
        """Who this is."""
        broker = self._broker
        return {"name": broker.place.name, "host": broker.place.host, "id": broker.process_id}

    def head(self) -> Json:
        """What many documents begin with."""
        return {"server_id": self._broker.process_id, "now": self.now()}

    def statsz(self) -> Json:
        """The broker's figures."""
        broker = self._broker
        told = views.varz(broker, {})
        sent = {"msgs": told["out_msgs"], "bytes": told["out_bytes"]}
        received = {"msgs": told["in_msgs"], "bytes": told["in_bytes"]}
        routes, gateways = (views.links_of(broker, far=far) for far in (False, True))
        stats: Json = {
            "start": told["start"],
            "mem": told["mem"],
            "cores": os.cpu_count() or 1,
            "cpu": self._cpu_percent(),
            "connections": told["connections"],
            "total_connections": told["total_connections"],
            "active_accounts": len({client.account.name for client in broker.server.clients.values()}),
            "subscriptions": told["subscriptions"],
            "sent": sent,
            "sent_to_clients": sent,
            "received": received,
            "received_from_clients": received,
            "slow_consumers": told["slow_consumers"],
            "active_servers": 1 + len(routes) + len(gateways),
        }
        if told["stale_connections"]:
            stats["stale_connections"] = told["stale_connections"]
        if routes:
            stats["routes"] = [_link(link, number, "rid") for number, link in enumerate(routes, 1)]
        if gateways:
            stats["gateways"] = [_link(link, number, "gwid") for number, link in enumerate(gateways, 1)]
        if broker.core is not None:
            stats["jetstream"] = self._jetstream(broker.core.totals())
        return stats

    def varz(self) -> Json:
        """The broker at a glance."""
        return varz.of(self._broker, self._cpu_percent(), self.jetstream(), self.page_requests)

    def healthz(self, options: Options) -> Json:
        """Does the broker serve clients; is what is named there?"""
        code, told = health.health(self._broker, options, "ready", self.accounts())
        return {**told, "status_code": code}

    def _cpu_percent(self) -> float:
        """Of one core, since it was last asked for, and over a second at least."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        now_ms, used_s = self._broker.clock.machine_ms(), usage.ru_utime + usage.ru_stime
        before_ms, used_before_s = self._cpu_at
        if now_ms - before_ms >= 1000:
            self._cpu = round((used_s - used_before_s) * 100_000 / (now_ms - before_ms), 1)
            self._cpu_at = (now_ms, used_s)
        return self._cpu

    # ---- streams --------------------------------------------------------------------------------------------------

    def jetstream(self) -> Json:
        """What VARZ says of streams; empty: there are none."""
        core = self._broker.core
        if core is None:
            return {}
        told = self._jetstream(core.totals())
        store_dir = str(self._broker.place.data_dir)
        return {**told, "config": {**told["config"], "store_dir": store_dir}}

    def _jetstream(self, totals: Totals) -> Json:
        """What STATSZ and VARZ say of streams."""
        told = self._jetstream_stats(totals)
        found: Json = {"config": self._jetstream_config(totals), "stats": told}
        if totals.meta_voters > 1:
            found["meta"] = self._meta(totals)
        return found

    def _jetstream_config(self, totals: Totals) -> Json:
        storage = self._broker.settings.storage
        told: Json = {
            "max_memory": totals.max_memory_bytes,
            "max_storage": totals.max_storage_bytes,
            "sync_interval": storage.sync_interval_ms * 1_000_000,
            "strict": True,
        }
        if storage.sync_always:
            told["sync_always"] = True
        return told

    def _jetstream_stats(self, totals: Totals) -> Json:
        return {
            "memory": totals.sum("memory_bytes"),
            "storage": totals.sum("storage_bytes"),
            "reserved_memory": totals.sum("reserved_memory_bytes"),
            "reserved_storage": totals.sum("reserved_storage_bytes"),
            "accounts": sum(held.streams > 0 for held in totals.by_account.values()),
            "ha_assets": totals.sum("replicated") + (totals.meta_voters > 1),
            "api": {"level": LEVEL, "total": totals.sum("api_total"), "errors": totals.sum("api_errors")},
        }

    def _meta(self, totals: Totals) -> Json:
        told: Json = {"name": self._broker.settings.cluster}
        if totals.meta_leader:
            told |= {"leader": totals.meta_leader, "peer": totals.meta_leader}
        return {
            **told,
            "replicas": totals.meta_replicas,
            "cluster_size": totals.meta_voters,
            "quorum_needed": totals.meta_voters // 2 + 1,
            "pending": totals.meta_pending,
        }

    def leads_meta(self) -> bool:
        """Does this broker lead the meta group?"""
        core = self._broker.core
        return core is not None and core.totals().meta_leader == self._broker.place.name

    def jsz(self, options: Options) -> tuple[Json, dict[str, Iterator[Json]]]:
        """Streams in sum; of the accounts that are asked for also one by one, to be put into their `stream_detail`."""
        broker, core = self._broker, self._broker.core
        head = self.head()
        if core is None:
            return {**head, "disabled": True}, {}
        totals = core.totals()
        accounts = {name: held for name, held in totals.by_account.items() if held.streams}
        found: Json = {
            **self._jetstream_stats(totals),
            **head,
            "config": {**self._jetstream_config(totals), "store_dir": str(broker.place.data_dir)},
            "streams": totals.sum("streams"),
            "streams_leader": totals.sum("streams_led"),
            "consumers": totals.sum("consumers"),
            "messages": totals.sum("messages"),
            "bytes": totals.sum("memory_bytes") + totals.sum("storage_bytes"),
            "total": len(accounts),
        }
        if totals.meta_voters > 1:
            found["meta_cluster"] = self._meta(totals)
        wants_streams = options.flag("streams") or options.flag("consumer") or options.flag("config")
        one = options.text("account")
        rows: dict[str, Iterator[Json]] = {}
        if one or wants_streams or options.flag("accounts"):
            offset, limit = options.page()
            names = [one] if one in accounts else [] if one else sorted(accounts)[offset : offset + limit]
            if names:
                found["account_details"] = [account_jsz(name, accounts[name]) for name in names]
            if wants_streams:
                rows = {
                    name: core.stream_details(
                        name,
                        led_only=options.flag("stream_leader_only"),
                        config=options.flag("config"),
                        consumers=options.flag("consumer"),
                        groups=options.flag("raft"),
                    )
                    for name in names
                }
        return found, rows

    def account_jsz(self, account: str) -> Json:
        """What an account has here."""
        core = self._broker.core
        self.check_account(account, f'account "{account}" not found')
        held = core.totals().by_account.get(account) if core is not None else None
        return account_jsz(account, held)

    # ---- accounts -------------------------------------------------------------------------------------------------

    def accounts(self) -> list[str]:
        """Those that this broker knows of."""
        broker = self._broker
        names = {user.account for user in broker.credentials.users} or {broker.server.default_account}
        names.add(broker.credentials.system_account)
        names.update(name for name, found in broker.router.accounts.items() if found.sublist.local_count)
        if broker.core is not None:
            names.update(broker.core.totals().by_account)
        return sorted(names - {BROKERS_ACCOUNT})

    def check_account(self, account: str, text: str) -> None:
        """Is there such an account?

        Raises:
            WrongOptionsError: there is not.
        """
        if account not in self.accounts():
            raise WrongOptionsError(text, 500)

    def accountz(self, options: Options) -> Json:
        """The accounts, or one of them."""
        broker = self._broker
        told: Json = {**self.head(), "system_account": broker.credentials.system_account}
        account = options.text("account")
        if account:
            return {**told, "account_detail": self.account_info(account)}
        return {**told, "accounts": self.accounts()}

    def account_info(self, account: str) -> Json:
        broker = self._broker
        self.check_account(account, f"Account {account} does not exist")
        found = broker.router.accounts.get(account)
        return {
            "account_name": account,
            "name_tag": account,
            "expired": False,
            "complete": True,
            "jetstream_enabled": broker.core is not None and account != broker.credentials.system_account,
            "leafnode_connections": 0,
            "client_connections": len(self._clients(account)),
            "subscriptions": found.sublist.local_count if found is not None else 0,
        }

    def _clients(self, account: str) -> list[Client]:
        return [
            client
            for client in self._broker.server.clients.values()
            if client.has_come and client.account.name == account
        ]

    def account_stats(self, account: str) -> Json:
        """Connections and traffic of an account."""
        broker = self._broker
        clients = self._clients(account)
        found = broker.router.accounts.get(account)
        traffic = Traffic(**asdict(broker.server.gone.get(account, Traffic())))
        for client in clients:
            traffic.add(client)
        return {
            "acc": account,
            "name": account,
            "conns": len(clients),
            "leafnodes": 0,
            "total_conns": len(clients),
            "num_subscriptions": found.sublist.local_count if found is not None else 0,
            "sent": {"msgs": traffic.out_messages, "bytes": traffic.out_bytes},
            "received": {"msgs": traffic.in_messages, "bytes": traffic.in_bytes},
            "slow_consumers": traffic.slow_consumers,
        }

    def account_statz(self, names: Iterable[str], *, with_unused: bool) -> Json | None:
        """Statistics of accounts that are in use here; None: of none."""
        told = [self.account_stats(name) for name in names]
        told = [each for each in told if with_unused or each["conns"]]
        if not told:
            return None
        return {**self.head(), "account_statz": told}

    def routez(self) -> Json:
        """The links within the cluster."""
        broker = self._broker
        links = views.links_of(broker, far=False)
        return {
            "server_id": broker.process_id,
            "server_name": broker.place.name,
            "now": self.now(),
            "num_routes": len(links),
            "routes": [self._route(link, number) for number, link in enumerate(links, 1)],
        }

    def _route(self, link: Link, number: int) -> Json:
        clock, control = self._broker.clock, link.control
        now_ns, now_ms = clock.now_ns(), clock.monotonic_ms()
        told = views.link_view(link)
        return {
            "rid": number,
            "remote_id": link.peer.process,
            "remote_name": link.peer.node,
            "did_solicit": control.dialled,
            "is_configured": True,
            "ip": control.address,
            "port": control.port,
            "start": views.time_of(now_ns - (now_ms - control.opened_ms) * 1_000_000),
            "last_activity": views.time_of(now_ns - (now_ms - control.heard_ms) * 1_000_000),
            "uptime": views.span_of(now_ms - control.opened_ms),
            "idle": views.span_of(now_ms - control.heard_ms),
            "pending_size": told["pending_size"],
            "in_bytes": told["in_bytes"],
            "out_bytes": told["out_bytes"],
            "subscriptions": told["subscriptions"],
            "compression": "off",
        }

    def gatewayz(self) -> Json:
        """The links with other clusters. NATS has one outbound per cluster: the first that was dialled here stands for it."""
        broker = self._broker
        outbound: dict[str, Json] = {}
        inbound: dict[str, list[Json]] = {}
        for number, link in enumerate(views.links_of(broker, far=True), 1):
            told = views.link_view(link)
            connection = {
                "configured": link.control.dialled,
                "connection": {
                    "cid": number,
                    "name": link.peer.node,
                    "ip": told["ip"],
                    "pending_bytes": told["pending_size"],
                    "in_bytes": told["in_bytes"],
                    "out_bytes": told["out_bytes"],
                    "subscriptions": told["subscriptions"],
                },
            }
            if link.control.dialled and link.peer.cluster not in outbound:
                outbound[link.peer.cluster] = connection
            else:
                inbound.setdefault(link.peer.cluster, []).append(connection)
        there = {
            "name": broker.settings.cluster,
            "host": broker.place.gateway_host or broker.place.host,
            "port": broker.gateway_port,
        }
        return {
            **self.head(),
            **(there if broker.gateway_port else {}),
            "outbound_gateways": outbound,
            "inbound_gateways": inbound,
        }

    def leafz(self) -> Json:
        """There are no leaf nodes."""
        return {**self.head(), "leafnodes": 0, "leafs": []}


def account_jsz(account: str, held: Held | None) -> Json:
    """What an account has on a broker."""
    return {
        "name": account,
        "id": account,
        "memory": held.memory_bytes if held else 0,
        "storage": held.storage_bytes if held else 0,
        "reserved_memory": held.reserved_memory_bytes if held else 0,
        "reserved_storage": held.reserved_storage_bytes if held else 0,
        "accounts": 0,
        "ha_assets": held.replicated if held else 0,
        "api": {
            "level": LEVEL,
            "total": held.api_total if held else 0,
            "errors": held.api_errors if held else 0,
        },
    }


def _link(link: Link, number: int, name: str) -> Json:
    told = views.link_view(link)
    return {
        name: number,
        "name": link.peer.node,
        "sent": {"bytes": told["out_bytes"]},
        "received": {"bytes": told["in_bytes"]},
        "pending": told["pending_size"],
    }


def with_streams(head: Json, rows: Mapping[str, Iterator[Json]]) -> Json:
    """JSZ, each of whose accounts gets its rows as `stream_detail`, where there are any."""
    details = head.get("account_details", [])
    if not rows:
        return head
    return {
        **head,
        "account_details": iter([{**detail, "stream_detail": rows[detail["name"]]} for detail in details]),
    }
