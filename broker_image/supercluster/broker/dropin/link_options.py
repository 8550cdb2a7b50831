"""Options that the `cluster` and `gateway` blocks share: link authorization, and TLS between servers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from supercluster.broker.dropin.addresses import Remote
from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields
from supercluster.broker.settings.settings import GatewayTls


@dataclass(frozen=True, slots=True)
class LinkOption:
    """A port for other servers."""

    name: str = ""
    """Of the own cluster."""
    host: str = ""
    port: int = 0
    """0: there is none; -1: any that is free."""
    advertise: str = ""
    """Where others are told that it is; empty: where it is bound."""
    user: str = ""
    """What others have to say here; empty: nothing."""
    password: str = field(default="", repr=False)
    tls: GatewayTls | None = None


def check_logins(place: Value, what: str, remotes: Iterable[Remote]) -> None:
    """
    Raises:
        ConfError: this server would be another user for each of them.
    """
    if len({(remote.user, remote.password) for remote in remotes if remote.user}) > 1:
        raise place.wrong(f"{what} have to name one user and password")


def read_login(found: Fields, block: str) -> tuple[str, str]:
    """User and password that others have to say; empty: nothing is asked.

    Raises:
        ConfError: it is not the one user with a password that is possible here.
    """
    inner = found.map("authorization")
    if inner is None:
        return "", ""
    inner.refuse(f"servers that link by {block} have one user and password", "users", "token", "permissions")
    user, password = inner.text("user", "username"), inner.text("pass", "password")
    inner.of_no_use("timeout")
    inner.done()
    if not user or not password:
        raise inner.value.wrong(f"{block}.authorization needs user and password")
    return user, password


def read_link_tls(found: Fields, block: str) -> GatewayTls | None:
    """TLS with certificates of both sides; None: links are not encrypted.

    Raises:
        ConfError: a file is not named, or something changes who is let in and is not there.
    """
    inner = found.map("tls")
    if inner is None:
        return None
    files = {name: inner.text(name) for name in ("cert_file", "key_file", "ca_file")}
    for name, text in files.items():
        if not text:
            raise inner.value.wrong(
                f"{block}.tls needs {name}: both sides show a certificate, and check the other's"
            )
    inner.refuse("admitting only some of an authority's certificates is not supported", "pinned_certs")
    inner.refuse(
        "servers' names are not compared with their certificates here", "verify_cert_and_check_known_urls"
    )
    inner.of_no_use(
        *("verify", "timeout", "insecure", "cipher_suites", "curve_preferences", "min_version"),
        "handshake_first",
    )
    inner.done()
    return GatewayTls(Path(files["cert_file"]), Path(files["key_file"]), Path(files["ca_file"]))
