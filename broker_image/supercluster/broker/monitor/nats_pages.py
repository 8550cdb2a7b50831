"""The monitoring pages of a drop-in server in nats-server's format: the same documents as under
`$SYS.REQ.SERVER.<id>`, over HTTP.

Other brokers have pages of their own (`views.py`), which the operator reads.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from supercluster.broker.monitor.options import Options, WrongOptionsError
from supercluster.broker.monitor.slices import is_long
from supercluster.broker.monitor.system_documents import SystemDocuments, with_streams

_STATES = {"": "0", "open": "0", "closed": "1", "any": "2", "all": "2"}
_WRONG = 400


@dataclass(frozen=True, slots=True)
class Page:
    """What a page's query may say, by the names that the fields of a request under `$SYS` have; and what is shown."""

    make: Callable[[SystemDocuments, Options], dict[str, Any]]
    flags: Mapping[str, str]
    texts: Mapping[str, str]
    numbers: tuple[str, ...] = ()

    def read(self, query: Mapping[str, str]) -> Options:
        """The query as options.

        Raises:
            WrongOptionsError: a field is not what it has to be.
        """
        named = {**self.flags, **self.texts}
        return Options.of_query(
            {named.get(name, name): value for name, value in query.items()},
            flags=self.flags.values(),
            texts=self.texts.values(),
            numbers=self.numbers,
        )


def _accstatz(documents: SystemDocuments, options: Options) -> dict[str, Any]:
    found = documents.account_statz(documents.accounts(), with_unused=options.flag("include_unused"))
    return found or {**documents.head(), "account_statz": []}


_PAGE = ("offset", "limit")
JSZ = Page(
    lambda documents, options: documents.jsz(options)[0],
    {
        "accounts": "accounts",
        "streams": "streams",
        "consumers": "consumer",
        "config": "config",
        "leader-only": "leader_only",
        "raft": "raft",
        "stream-leader-only": "stream_leader_only",
    },
    {"acc": "account"},
    _PAGE,
)
CONNZ = Page(
    lambda documents, options: documents.connections.connz(options),
    {"auth": "auth", "subs": "subscriptions", "subs_detail": "subscriptions_detail"},
    {name: name for name in ("acc", "user", "sort", "filter_subject")},
    (*_PAGE, "cid", "state"),
)
SUBSZ = Page(
    lambda documents, options: documents.connections.subsz(options),
    {"subs": "subscriptions"},
    {"acc": "account", "test": "test"},
    _PAGE,
)
PAGES: dict[str, Page] = {
    "/connz": CONNZ,
    "/subsz": SUBSZ,
    "/subscriptionsz": SUBSZ,
    "/varz": Page(lambda documents, options: documents.varz(), {}, {}),
    "/routez": Page(lambda documents, options: documents.routez(), {}, {}),
    "/gatewayz": Page(lambda documents, options: documents.gatewayz(), {}, {}),
    "/accountz": Page(lambda documents, options: documents.accountz(options), {}, {"acc": "account"}),
    "/accstatz": Page(_accstatz, {"unused": "include_unused"}, {}),
    "/leafz": Page(lambda documents, options: documents.leafz(), {}, {}),
}
OTHERS = ("/jsz", "/healthz", "/metrics")


def add(router: web.UrlDispatcher, documents: SystemDocuments) -> None:
    """Serve them."""
    for path, page in PAGES.items():
        router.add_get(path, _serve(documents, page))
    router.add_get("/jsz", _jsz(documents))
    router.add_get("/", _front)


Handler = Callable[[web.Request], Awaitable[web.Response]]


def _serve(documents: SystemDocuments, page: Page) -> Handler:
    async def serve(request: web.Request) -> web.Response:
        try:
            told = page.make(documents, page.read(_query_of(request)))
        except WrongOptionsError as error:
            return web.Response(status=_WRONG, text=str(error))
        if not is_long(told):
            return _json(json.dumps(told, indent=2))
        return await _long(documents, told)

    return serve


def _jsz(documents: SystemDocuments) -> Handler:
    async def serve(request: web.Request) -> web.Response:
        try:
            options = JSZ.read(_query_of(request))
            if options.flag("leader_only") and not documents.leads_meta():
                return web.Response(status=_WRONG, text="this server does not lead the meta group")
            head, rows = documents.jsz(options)
        except WrongOptionsError as error:
            return web.Response(status=_WRONG, text=str(error))
        return await _long(documents, with_streams(head, rows))

    return serve


async def _long(documents: SystemDocuments, told: dict[str, Any]) -> web.Response:
    if documents.long_answers.is_full:
        return web.Response(status=503, text="too many requests for long answers at once")
    return _json(await documents.long_answers.encode(told))


def _query_of(request: web.Request) -> dict[str, str]:
    """With /connz's words for a number and a flag."""
    query = dict(request.query)
    if request.path == "/connz":
        if query.get("subs") == "detail":
            query |= {"subs": "", "subs_detail": "true"}
        state = query.get("state", "")
        if state not in _STATES:
            raise WrongOptionsError(f"state is {state}; it has to be one of open, closed, any")
        query["state"] = _STATES[state]
    return query


async def _front(_request: web.Request) -> web.Response:
    links = "".join(f'<li><a href="{path}">{path}</a></li>' for path in sorted({*PAGES, *OTHERS}))
    return web.Response(text=f"<html><body><ul>{links}</ul></body></html>\n", content_type="text/html")


def _json(text: str) -> web.Response:
    return web.Response(text=text + "\n", content_type="application/json")
