"""Callers of the bulk port: the users of the NATS ports, with their limits."""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import web

from supercluster.broker.auth.users import Shown, User
from supercluster.broker.bulk.host import Host
from supercluster.broker.monitor.basic_login import TooManyLoginsError, shown_by, user_of
from supercluster.broker.net.clients.allowance import Allowance
from supercluster.broker.net.clients.strangers import RationedLog
from supercluster.broker.net.routing.router import DEFAULT_ACCOUNT
from supercluster.broker.ports import ClientInfo

log = logging.getLogger(__name__)


class CutError(Exception):
    """The connection ends here."""


class RefusedError(Exception):
    """Nobody whom this port knows asks."""

    def __init__(self, answer: web.Response) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Callers:
    """See the module. A user that is None stands for everybody: there are no users."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._log_refused = RationedLog(log.warning, host.clock.monotonic_ms)

    async def find(self, request: web.Request) -> User | None:
        """
        Raises:
            RefusedError: it is none.
        """
        if not self._host.credentials.users:
            return None
        authorization = request.headers.get("Authorization", "")
        shown = shown_by(authorization) if authorization else Shown()
        try:
            user = (
                await user_of(self._host.server, request.remote or "", shown) if shown is not None else None
            )
        except TooManyLoginsError:
            why = "too many wrong passwords came from this address"
            raise RefusedError(refusal(429, why, {"Retry-After": "2"})) from None
        if user is None:
            self._log_refused("bulk port: wrong or missing credentials from %s", request.remote)
            asks = {"WWW-Authenticate": 'Basic realm="supercluster"'}
            raise RefusedError(refusal(401, "wrong or missing credentials", asks))
        return user

    def now(self, user: User | None) -> User | None:
        """The user as the credentials have it now.

        Raises:
            CutError: it is gone, or there are users by now.
        """
        credentials = self._host.credentials
        if user is None:
            if credentials.users:
                raise CutError
            return None
        found = user if user in credentials.users else credentials.successor(user)
        if found is None:
            raise CutError
        return found

    def payload_bytes_max(self, user: User | None) -> int:
        """Of one message, as over NATS."""
        allowance = Allowance(lambda: self._host.settings.limits)
        allowance.change(self._host.server.shared_limits.of(account_of(user), user.name if user else ""))
        return allowance.payload_bytes_max


def account_of(user: User | None) -> str:
    return user.account if user is not None else DEFAULT_ACCOUNT


def info_of(user: User | None) -> ClientInfo:
    """What rules about who may do what are judged by."""
    return ClientInfo(account_of(user), user.name if user else "", user is None or user.is_operator)


def refusal(status: int, why: str, headers: dict[str, str] | None = None, **more: Any) -> web.Response:
    return web.json_response({"error": why, **more}, status=status, headers=headers)
