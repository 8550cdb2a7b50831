"""Users: their credentials, the permissions that these grant, and the credentials that a client presents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from supercluster.broker.protocol.permissions import Permissions

ROLES = ("client", "operator", "system")
SYSTEM_ACCOUNT = "$SYS"
STANDARD, WEBSOCKET = "STANDARD", "WEBSOCKET"
"""Ways by which a client comes, as NATS names them."""

Named: TypeAlias = "tuple[str, str, str, str]"
KnownBy: TypeAlias = "tuple[str, str, str, str, str, str]"


class CredentialsError(Exception):
    """A credentials file can't be used; the text names file and field, never a secret."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What the clients of an account, or of a user, may have at one broker; -1: as much as the broker's own limits allow."""

    connections_max: int = -1
    subscriptions_max: int = -1
    """Of each client."""
    payload_bytes_max: int = -1

    def within(self, other: ClientLimits) -> ClientLimits:
        """Of each limit the smaller one."""
        return ClientLimits(
            _smaller(self.connections_max, other.connections_max),
            _smaller(self.subscriptions_max, other.subscriptions_max),
            _smaller(self.payload_bytes_max, other.payload_bytes_max),
        )


def _smaller(one: int, other: int) -> int:
    return max(one, other) if min(one, other) < 0 else min(one, other)


NO_CLIENT_LIMITS = ClientLimits()


@dataclass(frozen=True, slots=True)
class User:
    """A client's credentials and what they allow."""

    account: str
    role: str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    """A public key: whoever signs the nonce of INFO with its other half."""
    permissions: Permissions | None = None
    """None: everything."""
    connection_types: frozenset[str] = frozenset()
    """By which ways it may come; empty: by any."""
    credential: str = ""
    """A label that tells several credentials of one user apart. It is no secret, and nobody is known by it."""
    digest: str = ""
    """Of its entry in users.json; who has two versions of the file can tell by it which one is in force."""
    limits: ClientLimits = NO_CLIENT_LIMITS
    """Of all clients of the user together, whatever credentials they showed."""

    @property
    def name(self) -> str:
        """What it is called: by its public key, where it has no other name; empty: it came by a token."""
        return self.user or self.nkey

    @property
    def named(self) -> Named:
        """The user, whatever credentials it has."""
        return self.account, self.role, self.user, self.nkey

    @property
    def known_by(self) -> KnownBy:
        """What has to be the same for a client to stay: all but what it may do, by which ways it may come, and its label."""
        return self.account, self.role, self.user, self.password, self.token, self.nkey

    def may_come_by(self, connection_type: str) -> bool:
        return not self.connection_types or connection_type in self.connection_types

    @property
    def is_system(self) -> bool:
        """May it ask brokers about themselves, under `$SYS.REQ`?"""
        return self.role == "system"

    @property
    def is_operator(self) -> bool:
        """May it change declared streams and use the admin API?"""
        return self.role == "operator"


@dataclass(frozen=True, slots=True)
class Shown:
    """What a client shows of itself."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nkey: str = ""
    signature: str = field(default="", repr=False)
    nonce: str = field(default="", repr=False)
    """What the broker sent to be signed."""
    certificate: Mapping[str, Any] | None = None
    """A certificate that names the user, whatever the client says."""
    connection_type: str = STANDARD

    @property
    def is_nothing(self) -> bool:
        return not (self.user or self.password or self.token or self.nkey or self.certificate is not None)
