"""Whose credentials a request by HTTP carries (Basic): for the ports that speak HTTP."""

from __future__ import annotations

import asyncio
import base64
import binascii

from supercluster.broker.auth.users import Shown, User
from supercluster.broker.net.clients.client_server import ClientServer


class TooManyLoginsError(Exception):
    """The address had too many wrong passwords compared: nobody knows whose these are."""


def shown_by(authorization: str) -> Shown | None:
    """None: it is no Basic authorization. Who has a token shows it as the password of no user."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    if not colon:
        return None
    return Shown(user, password) if user else Shown(token=password)


async def user_of(server: ClientServer, address: str, shown: Shown) -> User | None:
    """Raises TooManyLoginsError."""
    credentials, comparisons = server.admission.credentials, server.admission.comparisons
    if credentials.takes_long(shown):
        answer: asyncio.Future[User | None] = asyncio.get_running_loop().create_future()
        if not comparisons.compare(address, shown, lambda: not answer.done(), answer.set_result):
            raise TooManyLoginsError(address)
        found = await answer
        if found is not None and found not in credentials.users:  # Changed meanwhile, or gone.
            found = credentials.successor(found)
    else:
        found = credentials.find(shown)
    if found is not None:
        server.shown_credentials.seen(found)
    return found
