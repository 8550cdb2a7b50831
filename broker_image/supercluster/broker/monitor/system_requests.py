"""Requests under `$SYS.REQ`: the permissions of the caller, the brokers that answer, and their answers
(`system_documents.py`).

Users with the role `system` may ask every broker of the super-cluster about itself. All other users may ask
about their own account and user. The client's broker checks that, and forwards the request to the others over
their links, in an account of the brokers' own. Each broker answers to the caller's inbox itself, within the
share of `shares.py` for each account.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from supercluster.broker.bounds import read_json
from supercluster.broker.monitor.broker import Network
from supercluster.broker.monitor.options import Options, WrongOptionsError
from supercluster.broker.monitor.shares import SYSTEM, Shares, Verdict
from supercluster.broker.monitor.slices import is_long
from supercluster.broker.monitor.system_documents import Json, SystemDocuments, with_streams
from supercluster.broker.monitor.system_events import SystemEvents
from supercluster.broker.monitor.tracer import Tracer
from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.routing.origin import Origin
from supercluster.broker.net.routing.router import BROKERS_ACCOUNT, SYSTEM_PREFIX
from supercluster.broker.net.routing.turn import Turn
from supercluster.broker.ports import Publisher
from supercluster.broker.protocol.frames import RemoteMessage

log = logging.getLogger(__name__)

NOT_HERE = ("PROFILEZ", "EXPVARZ", "IPQUEUESZ", "RAFTZ", "RELOAD", "KICK", "LDM")
"""NATS's, which ask for its own inner workings, or have the broker do something."""

USER_INFO = ("USER", "INFO")

EMPTY_BESIDE_ERRORS = ("INFO", "ACCOUNTZ", "JSZ")
"""Kinds whose refusals carry `data: null`, as nats-server's do."""


@dataclass(frozen=True, slots=True)
class SystemRequest:
    """One request, as it goes from broker to broker."""

    account: str
    """The asker's: that is where the answers go."""
    reply: bytes
    words: tuple[str, ...]
    """Of the subject, behind `$SYS.REQ`."""
    payload: bytes
    within: str
    """The account that it is about; empty: the whole broker."""
    by: str
    """Whose share it is taken from: the account of whoever asks, or `shares.SYSTEM`."""


class SystemRequests:
    """See the module; `net.routing.router.SystemHooks`."""

    stream = " system"
    """As a window: no stream is called so."""

    def __init__(self, network: Network, turn: Turn, documents: SystemDocuments) -> None:
        self._network = network
        self._turn = turn
        self._documents = documents
        self.events = SystemEvents(network, documents)
        self.trace = Tracer(network.router, documents).trace
        """See `SystemHooks`."""
        self._long: set[asyncio.Task[None]] = set()
        self._shares = Shares()
        # The others are told that requests are taken here.
        network.router.account(BROKERS_ACCOUNT).interest[SYSTEM_PREFIX + b">", b""] = 1
        network.router.system = self
        network.server.watch = self.events

    async def stop(self) -> None:
        """No more answers or events."""
        self.events.stop()
        for task in self._long:
            task.cancel()
        await asyncio.gather(*self._long, return_exceptions=True)

    # ---- requests -------------------------------------------------------------------------------------------------

    def take(self, publisher: Publisher, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        """A client of this broker asks."""
        client: Any = publisher
        words = tuple(subject[len(SYSTEM_PREFIX) :].decode(errors="replace").split("."))
        asked = self._judged(client, words, reply, payload)
        if asked is None:
            if reply and client.no_responders:
                self._network.router.no_responders.tell(client, subject, reply)
        elif reply and self._may_ask(asked):
            if words == USER_INFO:
                self._answer(asked.account, reply, {"data": _user(_asker(client))})
            else:
                self._pass_on(asked, subject)
        return True

    def _judged(
        self, client: Origin, words: tuple[str, ...], reply: bytes, payload: bytes
    ) -> SystemRequest | None:
        """What is asked, if this client may; None: for him nobody is there."""
        # An import leads to another account's answers, and gives nobody other rights than his own.
        who = _asker(client)
        is_system = bool(getattr(who.credential, "is_system", False))
        own, by = client.account.name, SYSTEM if is_system else who.account.name
        if words == USER_INFO:
            return SystemRequest(own, reply, words, b"", own, by)
        if not is_system:
            if words in (("SERVER", "PING", "CONNZ"), ("ACCOUNT", "PING", "CONNZ")):
                return SystemRequest(own, reply, ("ACCOUNT", own, "CONNZ"), payload, own, by)
            if words == ("ACCOUNT", "PING", "STATZ"):
                return SystemRequest(own, reply, ("ACCOUNT", own, "STATZ"), payload, own, by)
            return None
        known = len(words) in (2, 3) and words[0] in ("SERVER", "ACCOUNT")
        if not known or not self._is_known(words):
            return None
        return SystemRequest(own, reply, words, payload, "", by)

    def _is_known(self, words: tuple[str, ...]) -> bool:
        if words[0] == "ACCOUNT":
            return len(words) == 3 and words[2] in OF_ACCOUNT
        kind = words[2] if len(words) == 3 else "STATSZ"
        if kind not in OF_SERVER and kind not in NOT_HERE:
            return False
        return words[1] == "PING" or (len(words) == 3 and self._node_of(words[1]) is not None)

    def _node_of(self, server_id: str) -> str | None:
        """The broker of that id; an empty name is this one."""
        network = self._network
        if server_id == network.process_id:
            return ""
        links = network.mesh.links.values() if network.mesh is not None else ()
        return next((link.peer.node for link in links if link.peer.process == server_id), None)

    def _pass_on(self, asked: SystemRequest, subject: bytes) -> None:
        """Answer here, and have the others answer that are meant."""
        one = asked.words[0] == "SERVER" and asked.words[1] != "PING"
        node = self._node_of(asked.words[1]) if one else None
        if not one or node == "":
            self._take(asked)
        router, mesh = self._network.router, self._network.mesh
        if mesh is None or node == "":
            return
        names = ("account", "words", "within", "by")
        asker = json.dumps({name: getattr(asked, name) for name in names}).encode()
        others = router.account(BROKERS_ACCOUNT).sublist.lookup(subject).nodes
        for other in others:
            if node is None or other == node:
                message = (SYSTEM_PREFIX + b"PASSED", asked.reply, asker, asked.payload)
                mesh.send_message(other, BROKERS_ACCOUNT, True, (), message, None)
        self._turn.want()

    def forwarded(self, messages: Sequence[RemoteMessage]) -> None:
        """Other brokers' clients ask."""
        for _, _, _, reply, header, payload in messages:
            try:
                asker = read_json(header)
                asked = SystemRequest(
                    str(asker["account"]),
                    reply,
                    tuple(map(str, asker["words"])),
                    bytes(payload),
                    str(asker["within"]),
                    str(asker["by"]),
                )
            except (ValueError, KeyError, TypeError):
                log.warning("a broker passed on a request under $SYS.REQ that cannot be read")
                continue
            if self._may_ask(asked):
                self._take(asked)

    # ---- answers --------------------------------------------------------------------------------------------------

    def _may_ask(self, asked: SystemRequest) -> bool:
        """Is there room for it in the asker's share? Who asks too much is told so, within a bound of its own."""
        verdict = self._shares.judge(asked.by, self._network.clock.monotonic_ms())
        if verdict is Verdict.REFUSE:
            self._refuse(asked, 503, "too many requests in one second")
        return verdict is Verdict.ANSWER

    def _take(self, asked: SystemRequest) -> None:
        kind = asked.words[-1]
        try:
            options = Options(asked.payload)
            if kind != "IDZ" and not options.mean(self._network):
                return
            if asked.words[0] == "ACCOUNT":
                account = asked.within or asked.words[1]
                body = OF_ACCOUNT[kind](self._documents, options, account)
            elif kind in NOT_HERE:
                raise WrongOptionsError(f"these brokers do not have $SYS.REQ.SERVER.<id>.{kind}", 501)
            elif kind == "JSZ":
                self._jsz(asked, options)
                return
            else:
                body = OF_SERVER[kind if len(asked.words) == 3 else "STATSZ"](self._documents, options)
        except WrongOptionsError as error:
            self._refuse(asked, error.code, str(error))
            return
        if body is None:
            return
        if is_long(body):
            self._tell_slowly(asked, body)
            return
        if kind == "IDZ":
            self._publish(asked.account, asked.reply, body)
        elif kind == "CONNS":
            self._publish(asked.account, asked.reply, self.events.event("account_connections", body))
        else:
            name = "statsz" if kind in ("PING", "STATSZ") else "data"
            self._answer(asked.account, asked.reply, {name: body})

    def _refuse(self, asked: SystemRequest, code: int, text: str) -> None:
        error: Json = {"error": {"code": code, "description": text}}
        if asked.words[-1] in EMPTY_BESIDE_ERRORS:
            error = {"data": None, **error}
        self._answer(asked.account, asked.reply, error)

    def _answer(self, account: str, reply: bytes, body: Json) -> None:
        self._publish(account, reply, {"server": self._documents.server(), **body})

    def _publish(self, account: str, reply: bytes, body: Json) -> None:
        self._send(account, reply, json.dumps(body, separators=(",", ":")))

    def _send(self, account: str, reply: bytes, text: str) -> None:
        self._network.router.publish(account, reply, b"", b"", text.encode())

    # ---- streams and subscriptions, of which there may be thousands -----------------------------------------------------------------

    def _jsz(self, asked: SystemRequest, options: Options) -> None:
        documents = self._documents
        if options.flag("leader_only") and not documents.leads_meta():
            return
        head, rows = documents.jsz(options)
        if not rows:
            self._answer(asked.account, asked.reply, {"data": head})
        else:
            self._tell_slowly(asked, with_streams(head, rows))

    def _tell_slowly(self, asked: SystemRequest, body: Json) -> None:
        """What has rows without end, a slice at a time."""
        if self._documents.long_answers.is_full:
            self._refuse(asked, 503, "too many requests for long answers at once")
            return
        task = asyncio.create_task(self._encode(asked, body))
        self._long.add(task)
        task.add_done_callback(self._long.discard)

    async def _encode(self, asked: SystemRequest, body: Json) -> None:
        data = await self._documents.long_answers.encode(body)
        server = json.dumps(self._documents.server())
        self._send(asked.account, asked.reply, f'{{"server":{server},"data":{data}}}')


def _asker(client: Origin) -> Client:
    """Who asks, also by an import."""
    return cast("Client", client.client)


def _user(client: Client) -> Json:
    """Who a client is, and what he may do."""
    account = client.account.name
    told: Json = {"user": client.info.user, "account": account, "account_name": account}
    permissions = getattr(client.credential, "permissions", None)
    if permissions is None:
        return told
    shown: Json = {}
    for name in ("publish", "subscribe"):
        rules = getattr(permissions, name)
        lists = {
            which: [pattern.decode() for pattern in getattr(rules, which)]
            for which in ("allow", "deny")
            if getattr(rules, which)
        }
        if lists:
            shown[name] = lists
    if permissions.responses is not None:
        shown["responses"] = {
            "max": permissions.responses.messages_max,
            "ttl": permissions.responses.ttl_ms * 1_000_000,
        }
    return {**told, "permissions": shown}


OF_SERVER: dict[str, Callable[[SystemDocuments, Options], Json]] = {
    "STATSZ": lambda documents, options: documents.statsz(),
    "VARZ": lambda documents, options: documents.varz(),
    "CONNZ": lambda documents, options: documents.connections.connz(options),
    "SUBSZ": lambda documents, options: documents.connections.subsz(options),
    "JSZ": lambda documents, options: documents.jsz(options)[0],
    "HEALTHZ": lambda documents, options: documents.healthz(options),
    "ACCOUNTZ": lambda documents, options: documents.accountz(options),
    "ROUTEZ": lambda documents, options: documents.routez(),
    "GATEWAYZ": lambda documents, options: documents.gatewayz(),
    "LEAFZ": lambda documents, options: documents.leafz(),
    "IDZ": lambda documents, options: documents.idz(),
}


def _statz(documents: SystemDocuments, options: Options, account: str) -> Json | None:
    wanted = options.texts("accounts")
    names = documents.accounts() if account == "PING" else [account]
    if account == "PING" and wanted:
        names = [name for name in names if name in wanted]
    return documents.account_statz(names, with_unused=options.flag("include_unused"))


def _conns(documents: SystemDocuments, options: Options, account: str) -> Json | None:
    found = documents.account_stats(account)
    return found if found["conns"] else None


OF_ACCOUNT: dict[str, Callable[[SystemDocuments, Options, str], Json | None]] = {
    "CONNZ": lambda documents, options, account: documents.connections.connz(options, account),
    "SUBSZ": lambda documents, options, account: documents.connections.subsz(options, account),
    "INFO": lambda documents, options, account: documents.account_info(account),
    "JSZ": lambda documents, options, account: documents.account_jsz(account),
    "LEAFZ": lambda documents, options, account: documents.leafz(),
    "STATZ": _statz,
    "CONNS": _conns,
}
