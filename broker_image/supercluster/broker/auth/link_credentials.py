"""Credentials that brokers present to one another: `cluster.json`, `gateway.json` and `migration.json`."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from supercluster.broker.auth.users import CredentialsError


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials of a link."""

    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class LinkCredentials:
    """What brokers have to say on one of the ports for brokers, and what this one says there."""

    accept: tuple[Login, ...] = ()
    send: Login = Login()
    is_open: bool = True
    """With nothing to accept: may anyone link up (there is no secret to know), or no one?"""

    def accepts(self, user: str, password: str) -> bool:
        """May a broker with these link up? All are compared, whichever fits."""
        fits = [same(login.user, user) & same(login.password, password) for login in self.accept]
        return any(fits) or (not self.accept and self.is_open)


def parse_links(document: object) -> LinkCredentials:
    if not isinstance(document, dict) or not isinstance(document.get("accept", []), list):
        raise CredentialsError('has to be {"accept": [...], "send": {...}}')
    accept = tuple(
        _login(f"accept[{index}]", entry) for index, entry in enumerate(document.get("accept", []))
    )
    send = _login("send", document["send"]) if "send" in document else Login()
    return LinkCredentials(accept, send)


def _login(where: str, entry: object) -> Login:
    if not isinstance(entry, dict):
        raise CredentialsError(f"{where} has to be an object")
    user, password = entry.get("user"), entry.get("password")
    if not isinstance(user, str) or not isinstance(password, str) or not user:
        raise CredentialsError(f"{where} needs user and password")
    return Login(user, password)


def same(one: str, other: str) -> bool:
    """Compared in the same time, wherever they differ."""
    return hmac.compare_digest(one.encode(), other.encode())
