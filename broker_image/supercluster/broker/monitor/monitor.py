"""HTTP endpoints of a broker: its state for administrators, probes and Prometheus, and the admin routes.

Requests are bounded in number and size: monitoring never takes the broker down. `/varz`, `/jsz` and the like
need no credentials and carry no secrets; everything under `/admin/` needs the operator's (HTTP Basic).
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Any, TypeAlias
from urllib.parse import unquote

from aiohttp import web

from supercluster.broker.bounds import read_json
from supercluster.broker.monitor import guard, health, nats_pages, same_site, views
from supercluster.broker.monitor.basic_login import TooManyLoginsError, shown_by, user_of
from supercluster.broker.monitor.broker import Broker
from supercluster.broker.monitor.http_port import HttpPort
from supercluster.broker.monitor.options import Options, WrongOptionsError
from supercluster.broker.monitor.system_documents import SystemDocuments
from supercluster.broker.net.clients.strangers import RationedLog

log = logging.getLogger(__name__)

PROBES = "/healthz"
PLAIN_REFUSED = "Client sent an HTTP request to an HTTPS server.\n"
REQUESTS_MAX = 64
"""Requests served at the same time; more are answered 503."""

BODY_BYTES_MAX = 1 << 20
UNSENT_BYTES_MAX = 64 << 20
"""Answers that clients have not taken yet, all together; beyond it no more are made."""

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class AdminQuery(dict[str, str]):
    """What a call's query says, by name; of a name that is there several times the first value."""

    def __init__(self, said: Iterable[tuple[str, str]], blanks: Mapping[str, str]) -> None:
        """`blanks`: what those of the path stand for, which count before what the query says."""
        self._said = list(said)
        super().__init__({**dict(reversed(self._said)), **blanks})

    def listed(self, name: str) -> list[str]:
        """All values of a name."""
        return [value for said, value in self._said if said == name]


AdminHandler: TypeAlias = Callable[[AdminQuery, Any], Awaitable[tuple[int, Any]]]
"""Takes the query (with what the path's blanks stand for) and the decoded JSON body (None without one); returns status
and what is answered as JSON."""


class Who(Enum):
    """Whose credentials a request carries."""

    OPERATOR = auto()
    CLIENT = auto()
    NOBODY = auto()
    LATER = auto()
    """Nobody knows: its address had too many wrong passwords compared."""


class Monitor:
    """The monitoring port."""

    def __init__(self, broker: Broker, documents: SystemDocuments) -> None:
        self._broker = broker
        self._documents = documents
        self.port = HttpPort("monitoring", broker.clock.monotonic_ms, judges_plain=True)
        self._admin: dict[tuple[str, str], AdminHandler] = {}
        self._active = 0
        self._log_refused = RationedLog(log.warning, broker.clock.monotonic_ms)

    def register_admin(self, method: str, path: str, handler: AdminHandler) -> None:
        """Serve `/admin/<path>`; may be called at any time. A part of the path like `{name}` stands for any text."""
        self._admin[method.upper(), path.strip("/")] = handler

    def register_routes(self, routes: Iterable[tuple[str, str, AdminHandler]]) -> None:
        """Serve several."""
        for method, path, handler in routes:
            self.register_admin(method, path, handler)

    async def start(self, host: str, port: int) -> int:
        """Bind and serve; returns the port.

        Raises:
            OSError: the address is in use or not ours.
        """
        app = web.Application(client_max_size=BODY_BYTES_MAX, middlewares=[self._bounded])
        is_nats = self._broker.place.shows_nats_pages
        if is_nats:
            nats_pages.add(app.router, self._documents)
        else:
            app.router.add_get("/jsz", self._jsz)
        pages = nats_pages.PAGES if is_nats else views.VIEWS
        self._documents.page_requests.update(dict.fromkeys((*pages, *nats_pages.OTHERS), 0))
        for path, view in views.VIEWS.items():
            if not (is_nats and path in nats_pages.PAGES):
                app.router.add_get(path, self._json(view))
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_route("*", "/admin/{path:.*}", self._serve_admin)
        return await self.port.start(app, host, port)

    async def stop(self) -> None:
        """Close the port."""
        await self.port.stop()

    def _refuses_plain(self, request: web.Request) -> bool:
        """Is TLS required of it? A kubelet's probes go on as they began, whatever becomes of TLS, and show nothing."""
        is_probe = request.path == PROBES and not self._broker.place.shows_nats_pages
        is_required = self.port.tls is not None and not self.port.tls.settings.allow_plain
        return is_required and not request.secure and not is_probe

    @web.middleware
    async def _bounded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.port.guards.begins(request.protocol)
        if self._refuses_plain(request):
            self.port.guards.ended(request.protocol)
            refused = web.Response(status=400, text=PLAIN_REFUSED)
            refused.force_close()
            return refused
        if request.path in self._documents.page_requests:
            self._documents.page_requests[request.path] += 1
        try:
            if request.path == PROBES:  # Answered at once, so it counts for nothing.
                return await handler(request)
            if self._active >= REQUESTS_MAX or self.port.guards.unsent_bytes() > UNSENT_BYTES_MAX:
                return web.json_response({"error": "too many requests at once"}, status=503)
            self._active += 1
            try:
                return await handler(request)
            finally:
                self._active -= 1
        finally:
            self.port.guards.ended(request.protocol)

    def _json(self, view: views.View) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def serve(request: web.Request) -> web.Response:
            return _answer(200, view(self._broker, dict(request.query)))

        return serve

    async def _jsz(self, request: web.Request) -> web.Response:
        query = dict(request.query)
        told = {**views.jsz(self._broker, query), "streams": views.jsz_streams(self._broker, query)}
        text = await self._documents.long_answers.encode(told)
        return web.Response(text=text + "\n", content_type="application/json")

    async def _health(self, request: web.Request) -> web.Response:
        query = request.query
        try:
            options = Options.of_query(query, flags=health.FLAGS, texts=health.TEXTS)
            accounts = self._documents.accounts() if query.get("account") else ()
            status, document = health.health(self._broker, options, query.get("probe", "ready"), accounts)
        except WrongOptionsError as error:
            status, document = error.code, {"status": "error", "error": str(error)}
        return _answer(status, document)

    async def _metrics(self, request: web.Request) -> web.Response:
        broker = self._broker
        labels = {"broker": broker.place.name, "cluster": broker.settings.cluster}
        text = await asyncio.to_thread(_metrics_text, labels, views.figures(broker))
        return web.Response(text=text, content_type="text/plain")

    async def _serve_admin(self, request: web.Request) -> web.Response:
        headers = request.headers
        foreign = same_site.refusal(
            request.method,
            headers.get("Host", ""),
            headers.get("Origin", ""),
            request.content_type,
            self._own_names(),
            is_open=not self._broker.credentials.users,
            is_secure=request.secure,
        )
        if foreign is not None:
            return _answer(foreign[0], {"error": foreign[1]})
        who = await self._who(request.remote or "", request.headers.get("Authorization", ""))
        if who is Who.LATER:
            return web.json_response(
                {"error": "too many wrong passwords came from this address"},
                status=429,
                headers={"Retry-After": "2"},
            )
        if who is Who.CLIENT:
            return _answer(403, {"error": "these credentials are not the operator's"})
        if who is Who.NOBODY:
            self._log_refused("/admin/: wrong or missing credentials from %s", request.remote)
            return web.json_response(
                {"error": "the operator's credentials are needed"},
                status=401,
                headers={"WWW-Authenticate": 'Basic realm="supercluster"'},
            )
        # As it was sent: a part may have a slash of its own, which is escaped.
        path = request.rel_url.raw_path.removeprefix("/admin/").strip("/")
        found = self._find_admin(request.method, path)
        if found is None:
            known = sorted(f"{method} /admin/{name}" for method, name in self._admin)
            return _answer(404, {"error": f"{request.method} /admin/{path} is not known", "known": known})
        try:
            async with asyncio.timeout(guard.BODY_S):
                raw = await request.read()
        except TimeoutError:
            late = _answer(408, {"error": f"the body did not come within {guard.BODY_S:g} s"})
            late.force_close()
            return late
        try:
            body = read_json(raw) if raw else None
        except ValueError:
            return _answer(400, {"error": "the body is no JSON"})
        handler, blanks = found
        status, document = await handler(AdminQuery(request.query.items(), blanks), body)
        return _answer(status, document)

    def _own_names(self) -> set[str]:
        """By which this broker and its peers are known."""
        broker = self._broker
        addresses = [broker.place.advertise, *broker.settings.peers.values()]
        hosts = {address.rpartition(":")[0] or address for address in addresses}
        return {name.lower() for name in (*hosts, broker.place.name) if name}

    def _find_admin(self, method: str, path: str) -> tuple[AdminHandler, dict[str, str]] | None:
        """The handler of a path, and what its blanks stand for."""
        parts = [unquote(part) for part in path.split("/")]
        for (known_method, known), handler in self._admin.items():
            pattern = known.split("/")
            if known_method != method or len(pattern) != len(parts):
                continue
            blanks = {
                wanted[1:-1]: part for wanted, part in zip(pattern, parts, strict=True) if _is_blank(wanted)
            }
            if all(
                part if _is_blank(wanted) else part == wanted
                for wanted, part in zip(pattern, parts, strict=True)
            ):
                return handler, blanks
        return None

    async def _who(self, address: str, authorization: str) -> Who:
        credentials = self._broker.credentials
        if not credentials.users:
            return Who.OPERATOR
        shown = shown_by(authorization)
        try:
            found = await user_of(self._broker.server, address, shown) if shown is not None else None
        except TooManyLoginsError:
            return Who.LATER
        if found is None:
            return Who.NOBODY
        return Who.OPERATOR if found.is_operator else Who.CLIENT


def _metrics_text(labels: dict[str, str], figures: dict[str, Any]) -> str:
    from supercluster.broker.monitor import metrics

    return metrics.text_of(labels, figures)


def _is_blank(part: str) -> bool:
    return part.startswith("{") and part.endswith("}")


def _answer(status: int, document: Any) -> web.Response:
    return web.json_response(document, status=status, dumps=lambda value: json.dumps(value, indent=2) + "\n")
