"""STREAM.LIST: collects the information from each stream's leader."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from supercluster.broker.jetstream.api import answers, parser
from supercluster.broker.jetstream.api.requests import StreamListRequest
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.pending_requests import PendingRequests
from supercluster.broker.ports import ClientInfo

_INFO_WAIT_MS = 1000
PAGE_BYTES_MAX = 1024 * 1024
"""Of the configurations on one page, which has at least one stream. Clients ask for the rest by its offset."""


class StreamList:
    """One call: those that don't answer in time are left out of the page but counted, as NATS does with streams that are
    offline."""

    def __init__(
        self,
        env: Environment,
        map_view: MapView,
        requests: PendingRequests,
        info: ClientInfo,
        call: StreamListRequest,
        names: list[str],
        then: Callable[[bytes], None],
    ) -> None:
        self._env = env
        self._map = map_view
        self._requests = requests
        self._info = info
        self._offset = call.offset
        self._with_details = call.details
        self._names = names
        self._then = then
        self._found: dict[str, dict[str, Any]] = {}
        self._left = 0

    def start(self) -> None:
        """Ask the leaders; `then` gets the answer, once."""
        page = self._page()
        self._left = len(page)
        if not page:
            self._answer()
        for name in page:
            self._ask(name)

    def _page(self) -> list[str]:
        """Names of streams whose configurations are no more than a turn can read."""
        page: list[str] = []
        size = 0
        for name in self._names[self._offset : self._offset + answers.LIST_PAGE]:
            found = self._map.stream_of(self._info.account, name)
            size += found.config.size_bytes if found is not None else 0
            if page and size > PAGE_BYTES_MAX:
                break
            page.append(name)
        return page

    def _ask(self, name: str) -> None:
        found = self._map.stream_of(self._info.account, name)
        if found is None:
            self._took(name, None)
            return

        self._requests.send(
            found.group,
            self._info,
            b"$JS.API.STREAM.INFO." + name.encode(),
            b"",
            b"",
            json.dumps({parser.DETAILS: True}).encode() if self._with_details else b"",
            self._env.clock.monotonic_ms(),
            on_answer=partial(self._took, name),
            wait_ms=_INFO_WAIT_MS,
        )

    def _took(self, name: str, answer: bytes | None) -> None:
        self._left -= 1
        if answer is not None:
            info = answers.info_of_answer(answer)
            if info is not None:
                self._found[name] = info
        if self._left == 0:
            self._answer()

    def _answer(self) -> None:
        infos = [self._found[name] for name in self._names if name in self._found]
        self._then(answers.list_page("stream_list", infos, total=len(self._names), offset=self._offset))
