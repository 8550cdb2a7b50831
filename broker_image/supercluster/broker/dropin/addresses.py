"""Addresses as nats-server's configuration and flags write them: where to listen, and URLs of other servers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from supercluster.broker.bounds import U16_MAX, whole_number
from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields, shown, text_of

REMOTES_MAX = 64
_SCHEMES = ("nats", "nats-route", "tls")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 is no port at all, -1 any that is free."""

    host: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class Remote:
    """Where another server is, and what this one says there."""

    address: str
    user: str = ""
    password: str = field(default="", repr=False)


def address_of(text: str, host: str) -> Address | None:
    """host:port, :port or port; None when it is none of them."""
    name, colon, number = text.rpartition(":")
    found = number.removeprefix("-")
    port = whole_number(found.encode(), U16_MAX)
    if port is None or (number.startswith("-") and number != "-1"):
        return None
    return Address((name.removeprefix("[").removesuffix("]") if colon else "") or host, int(number))


def read_listen(found: Fields, name: str, base: Address, *hosts: str) -> Address:
    """What the fields `listen`, `port` and those for the host say.

    Raises:
        ConfError: one of them is no address or port.
    """
    address = base
    if (value := found.take("listen")) is not None:
        address = read_address(value, name, base.host)
    host = found.text(*(hosts or ("host", "net")), default=address.host)
    return Address(host, read_port(found, "port") or address.port)


def read_address(value: Value, name: str, host: str) -> Address:
    """
    Raises:
        ConfError: the value is no address.
    """
    found = address_of(text_of(value) or "", host)
    if found is None:
        raise value.wrong(f"{name} has to be host:port or a port from -1 to 65535, not {shown(value)}")
    return found


def read_port(found: Fields, *names: str) -> int:
    """
    Raises:
        ConfError: the value is no port.
    """
    return found.integer(*names, default=0, low=-1, high=U16_MAX)


def parse_remote(text: str, default_port: int) -> Remote | None:
    """nats-route://user:password@host:port; None when it is none."""
    try:
        url = urlsplit(text)
        port = url.port or default_port
    except ValueError:
        return None
    if url.scheme not in _SCHEMES or not url.hostname:
        return None
    host = f"[{url.hostname}]" if ":" in url.hostname else url.hostname
    return Remote(f"{host}:{port}", unquote(url.username or ""), unquote(url.password or ""))


def parse_remotes(texts: Sequence[str], default_port: int) -> tuple[Remote, ...] | None:
    """All of them; None when one is none, or there are too many."""
    found = [parse_remote(text.strip(), default_port) for text in texts]
    remotes = tuple(remote for remote in found if remote is not None)
    return remotes if len(remotes) == len(found) <= REMOTES_MAX else None


def read_remote(value: Value, default_port: int, what: str) -> Remote:
    """An error does not show the text, which may have a password.

    Raises:
        ConfError: the value is no URL of a server.
    """
    found = parse_remote(text_of(value) or "", default_port)
    if found is None:
        raise value.wrong(f"{what} as in nats://user:password@host:{default_port}")
    return found
