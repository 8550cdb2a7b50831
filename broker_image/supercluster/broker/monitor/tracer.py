"""Message tracing: a client that sets `Nats-Trace-Dest` gets an event with the path of its message on that
subject.

There is one event per message, from the client's broker: its local receivers, the brokers that it goes to,
and the stream that captures it. Deliveries by other brokers and the stream's leader are not traced. With
`Nats-Trace-Only` the message is a probe, and is neither delivered nor stored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice

from supercluster.broker.monitor.system_documents import Json, SystemDocuments
from supercluster.broker.net.routing.origin import BETWEEN, ClientOrigin
from supercluster.broker.net.routing.router import Router
from supercluster.broker.net.routing.subscriber import Subscriber, Subscription
from supercluster.broker.protocol import headers
from supercluster.broker.protocol.parser import Message
from supercluster.broker.protocol.subjects import is_valid_literal
from supercluster.broker.protocol.sublist import Match

DESTINATION, ALONE = b"Nats-Trace-Dest", b"Nats-Trace-Only"
_YES = (b"1", b"true", b"on")
WAYS_MAX = 1000
"""That are told of one message, however many listen to it."""
# Kinds of connections, as events of nats-server number them.
CLIENT, ROUTER, GATEWAY = 0, 1, 2


class Tracer:
    """Of one broker."""

    def __init__(self, router: Router, documents: SystemDocuments) -> None:
        self._router = router
        self._documents = documents

    def trace(self, client: ClientOrigin, match: Match[Subscription], message: Message) -> bool:
        """Tell the ways of a message whose header names a destination. True: it was for that alone, and goes no further."""
        subject, reply, header, _ = message
        destination = headers.header_value(header, DESTINATION) or b""
        is_alone = (headers.header_value(header, ALONE) or b"").lower() in _YES
        if not destination:
            return False
        if is_valid_literal(destination) and client.may_publish_mapped(destination):
            told = self._told(client, match, message, echo=client.echo)
            text = json.dumps(told, separators=(",", ":")).encode()
            self._router.publish(client.account.name, destination, b"", b"", text)
        if is_alone and not match.anyone and match.window is None:
            self._router.no_responders.undelivered(client, match, subject, reply)
        return is_alone

    def _told(
        self, client: ClientOrigin, match: Match[Subscription], message: Message, *, echo: bool
    ) -> Json:
        subject, _, header, payload = message
        fields: dict[str, list[str]] = {}
        for name, value in headers.parse_header(header) or ():
            fields.setdefault(_text(name), []).append(_text(value))
        now = self._documents.now()
        first: Json = {"type": "in", "ts": now, **_client(client.subscriber)}
        events = [{**first, "acc": client.account.name, "subj": _text(subject)}]
        ways = islice(self._ways(match, None if echo else client.subscriber), WAYS_MAX)
        events += ({"type": "eg", "ts": now, **way} for way in ways)
        stream = match.window.stream if match.window is not None else ""
        if stream and BETWEEN not in stream:
            events.append({"type": "js", "ts": now, "stream": stream, "subject": _text(subject)})
        request = {"header": fields, "msgsize": len(header) + len(payload)}
        return {"server": self._documents.server(), "request": request, "events": events}

    def _ways(self, match: Match[Subscription], without: Subscriber | None) -> Iterator[Json]:
        """Out of this broker. Of several that could serve a queue group none is named: who does is drawn anew each time."""
        for subscription in match.plain:
            if subscription.subscriber is not without:
                yield _receiver(subscription)
        for node in match.nodes:
            yield self._broker(node)
        for group in match.groups:
            members = [member for member in group.local if member.subscriber is not without]
            if len(members) == 1:
                yield {**_receiver(members[0]), "queue": _text(group.name)}
            elif members:
                yield {"kind": CLIENT, "sub": _text(members[0].subject), "queue": _text(group.name)}
            elif len(group.remote) == 1:
                yield {**self._broker(next(iter(group.remote))), "queue": _text(group.name)}
            elif group.remote:
                yield {"kind": ROUTER, "queue": _text(group.name)}

    def _broker(self, node: str) -> Json:
        return {"kind": GATEWAY if node in self._router.accounts.far else ROUTER, "name": node}


def _client(subscriber: Subscriber) -> Json:
    return {"kind": CLIENT, "cid": subscriber.id, "name": subscriber.name}


def _receiver(subscription: Subscription) -> Json:
    return {**_client(subscription.subscriber), "sub": _text(subscription.subject)}


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
