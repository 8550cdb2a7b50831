"""CONNECT of one client: its options, whether it is admitted, and its input while that is being decided.

No message of a client is routed before it is admitted. Comparing a password may take long (`admission.py`).
Meanwhile its other input waits in order, and past a bound its socket is not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from supercluster.broker.bounds import read_json
from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.keep_alive import KeepAlive
from supercluster.broker.net.clients.shared_limits import TOO_MANY
from supercluster.broker.protocol.parser import PARSER_ERROR

PROTOCOLS = (None, 0, 1)
"""Not said, and of clients that take INFO at any time (1) or only at the beginning (0)."""
_FLAGS = ("verbose", "pedantic", "tls_required", "echo", "headers", "no_responders")
_TEXTS = ("jwt", "nkey", "sig", "auth_token", "user", "pass", "name", "lang", "version", "account")

_JUDGED = " "
"""A reason for not reading that is no broker's name."""

POSTPONED_BYTES_MAX = 64 << 10
"""What a client may say before its password was compared, until its socket is read no more: a refusal is lost where a socket is
closed with bytes that nobody has read."""


def are_typed(options: Mapping[str, Any]) -> bool:
    """Is each known field of CONNECT null or of its type? Else it is nonsense, as for nats-server, whose clients send none."""
    wanted = (*((name, bool) for name in _FLAGS), *((name, str) for name in _TEXTS))
    if not all(options.get(name) is None or isinstance(options[name], kind) for name, kind in wanted):
        return False
    protocol = options.get("protocol")
    return protocol is None or type(protocol) is int


class Login:
    """Of one client. It may say CONNECT more than once."""

    def __init__(self, server: ClientServer, client: Client, keep_alive: KeepAlive) -> None:
        self._server = server
        self._client = client
        self._keep_alive = keep_alive
        self.judged: dict[str, Any] | None = None
        """CONNECT whose password is being compared."""
        self._postponed: list[Any] = []
        """What came behind it."""

    def connect(self, raw: bytes) -> None:
        """Its CONNECT, as it came."""
        client = self._client
        try:
            options = read_json(raw)
        except ValueError:
            options = None
        if not isinstance(options, dict) or not are_typed(options):
            client.close(PARSER_ERROR)
            return
        verdict = self._server.admission.judge(client, options, self._verdict)
        if verdict is None:
            self.judged = options
            self._keep_alive.stop()  # It has said what it has to say.
        else:
            self._welcome(options, verdict)

    def _verdict(self, is_in: bool) -> None:
        """The password was compared: go on with what came behind CONNECT."""
        client = self._client
        options, self.judged = self.judged, None
        assert options is not None
        self._welcome(options, is_in)
        postponed, self._postponed = self._postponed, []
        if not client.closed:
            client.take(postponed)
        if self.judged is None:
            client.unstall(_JUDGED)
        client.turn.want()

    def takes_without(self) -> bool:
        """Without CONNECT a client shows nothing: there may be a user for that."""
        client = self._client
        if not self._server.admission.takes_without(client):
            self._server.counts.auth_failures += 1
            return False
        if not self._server.shared_limits.enter(client):
            client.close(TOO_MANY)
            return False
        client.authenticated = True
        self._server.let_in(client)
        self._keep_alive.restart()
        return True

    def _welcome(self, options: dict[str, Any], is_in: bool) -> None:
        client = self._client
        if not is_in or options.get("account"):  # Whose account it is, its user says.
            self._server.refused(client, str(options.get("user") or ""))
            client.close("Authorization Violation")
            return
        if options.get("protocol") not in PROTOCOLS:
            client.close("invalid client protocol")
            return
        client.wants_info = options.get("protocol") == 1
        if not self._server.shared_limits.enter(client):
            self._server.refused(client, str(options.get("user") or ""))
            client.close(TOO_MANY)
            return
        client.authenticated = True
        client.verbose = options.get("verbose") is True
        client.pedantic = options.get("pedantic") is not False
        client.echo = options.get("echo") is not False
        client.subscriber.headers = options.get("headers") is True and self._server.has_headers
        client.no_responders = options.get("no_responders") is True
        if client.no_responders and not client.subscriber.headers:
            client.close("no responders requires headers support")  # What it is told then is a header.
            return
        client.subscriber.name = str(options.get("name") or "")[:256]
        client.language = str(options.get("lang") or "")[:64]
        client.library_version = str(options.get("version") or "")[:64]
        self._keep_alive.restart()
        if client.has_come or self._server.came(client):
            client.ok()

    def postpone(self, events: Sequence[Any]) -> None:
        """Keep what came while the password is being compared."""
        self._postponed += events
        if self._client.read_bytes > POSTPONED_BYTES_MAX:  # So far it has said nothing else.
            self._client.stall(_JUDGED)
