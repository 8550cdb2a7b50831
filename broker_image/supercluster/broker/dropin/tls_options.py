"""The TLS options of a configuration file, in any of its blocks, and those of the WebSocket listener."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields, shown, text_of
from supercluster.broker.protocol.durations import parse_duration_ns
from supercluster.broker.protocol.web_origins import Origin, WebOrigins, read_origin
from supercluster.broker.protocol.websocket import WebRules
from supercluster.broker.settings.settings import ClientTls

FIRST_WAIT_MS = 50
"""What `handshake_first: auto` means in nats-server."""

_CIPHERS = {
    f"TLS_ECDHE_{key}_WITH_{cipher}": f"ECDHE-{key}-{name}"
    for key in ("ECDSA", "RSA")
    for cipher, name in (
        ("AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("CHACHA20_POLY1305", "CHACHA20-POLY1305"),
        ("CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305"),
    )
}
"""Of TLS 1.2, as nats-server and as OpenSSL names them; those of 1.3 can't be chosen in either."""
_NEWER = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


def read_tls(found: Fields) -> ClientTls:
    """A `tls` block.

    Raises:
        ConfError: something of it is wrong, or changes who is let in and is not there.
    """
    found.refuse(
        "certificates of a system's store are not supported; give files",
        "cert_store",
        "cert_match",
        "cert_match_by",
    )
    found.refuse(
        "admitting only some of an authority's certificates is not supported",
        "pinned_certs",
        "ocsp_peer",
    )
    found.refuse("servers don't check one another's addresses here", "verify_cert_and_check_known_urls")
    certificate = _single(found)
    min_version, ciphers = _min_version(found), _ciphers(found)
    first, wait_ms = _handshake_first(found)
    tls = ClientTls(
        cert_file=_file(certificate, "cert_file"),
        key_file=_file(certificate, "key_file"),
        ca_file=Path(ca_file) if (ca_file := found.text("ca_file")) else None,
        verify=found.boolean("verify"),
        verify_and_map=found.boolean("verify_and_map"),
        handshake_first=first,
        first_wait_ms=wait_ms,
        timeout_ms=found.duration_ms("timeout", default=2000, low=50, high=60_000),
        # Names of 1.3 alone leave nothing for 1.2 to agree on.
        min_version="1.3" if ciphers == "" else min_version,
        ciphers=ciphers or "",
    )
    if certificate is not found:
        certificate.done()
    found.of_no_use(
        *(
            "insecure",
            "curve_preferences",
            "connection_rate_limit",
            "cert_match_skip_invalid",
            "ca_certs_match",
        ),
        "allow_insecure_cipher_suites",
    )
    found.done()
    return tls


def _single(found: Fields) -> Fields:
    """Where the certificate's files are named: here, or in a list of one."""
    listed = list(found.listed("certs", "certificates"))
    if not listed:
        return found
    if len(listed) > 1:
        raise listed[1].wrong("certs: a second certificate is not supported; one serves all clients")
    return found.inner(listed[0], "certs")


def _file(found: Fields, name: str) -> Path:
    text = found.text(name)
    if not text:
        raise found.value.wrong(f"tls needs {name}: a certificate (cert_file) and its key (key_file)")
    return Path(text)


def _handshake_first(found: Fields) -> tuple[bool, int]:
    value = found.take("handshake_first", "first", "immediate")
    if value is None:
        return False, 0
    if isinstance(value.data, bool):
        return value.data, 0
    text = value.data.lower() if isinstance(value.data, str) else ""
    if text == "auto":
        return True, FIRST_WAIT_MS
    wait_ns = parse_duration_ns(text.encode()) if text else None
    if wait_ns is None or not 1_000_000 <= wait_ns <= 60_000_000_000:
        raise value.wrong(
            f"handshake_first has to be true, false, auto or a time, as in 300ms, not {shown(value)}"
        )
    return True, wait_ns // 1_000_000


def _min_version(found: Fields) -> str:
    value = found.take("min_version")
    if value is None:
        return "1.2"
    text = str(value.data).lower().removeprefix("tls").removeprefix("v").strip()
    if text not in ("1.2", "1.3"):
        raise value.wrong(f"min_version has to be 1.2 or 1.3, not {shown(value)}")
    return text


def _ciphers(found: Fields) -> str | None:
    """Of TLS 1.2, as OpenSSL takes them; empty: only suites of 1.3 are named; None: none at all."""
    names = []
    value = found.take("cipher_suites")
    if value is None:
        return None
    if value.data == []:
        raise value.wrong("cipher_suites is empty; leave it out for the usual ones")
    for one in value.data if isinstance(value.data, list) else [value]:
        name = text_of(one) or ""
        if name in _CIPHERS:
            names.append(_CIPHERS[name])
        elif name not in _NEWER:
            raise one.wrong(
                f"cipher_suites: {shown(one)} is none that is offered; {', '.join(sorted(_CIPHERS))} are"
            )
    return ":".join(dict.fromkeys(names))


def with_plain(tls: ClientTls | None, *, allow_plain: bool) -> ClientTls | None:
    """The same where clients may also come without."""
    return replace(tls, allow_plain=allow_plain) if tls is not None else None


_COOKIES = {"user": "user_cookie", "pass": "pass_cookie", "auth_token": "token_cookie"}
"""Field of CONNECT → the field that names its cookie."""


def read_web_rules(found: Fields) -> WebRules:
    """Which pages may come by WebSocket, and what cookies say who it is.

    Raises:
        ConfError: an origin is no address.
    """
    is_same = found.boolean("same_origin")
    value = found.take(
        "allowed_origins", "allowed_origin", "allow_origins", "allow_origin", "origins", "origin"
    )
    allowed = None
    if value is not None:
        told = value.data if isinstance(value.data, list) else [value]
        allowed = frozenset(_origin(one) for one in told)
    cookies = {name: found.text(field) for name, field in _COOKIES.items()}
    return WebRules(
        WebOrigins(is_same, allowed or None), {name: cookie for name, cookie in cookies.items() if cookie}
    )


def _origin(value: Value) -> Origin:
    origin = read_origin(text_of(value) or "")
    if origin is None:
        raise value.wrong(
            f"websocket.allowed_origins: {shown(value)} is no address as in http://localhost:3000"
        )
    return origin


def read_websocket(found: Fields) -> ClientTls | None:
    """What is left of a `websocket` block behind its address: TLS, or that there is none on purpose.

    Raises:
        ConfError: neither is said, or it would change who is let in and is not there.
    """
    tls = found.map("tls")
    has_none = found.boolean("no_tls")
    found.refuse("accounts by JWT are not supported", "jwt_cookie")
    found.refuse("users are those of the server", "authorization")
    found.of_no_use("advertise", "compression", "handshake_timeout", "headers", "ping_interval")
    found.done()
    if tls is None and not has_none:
        raise found.value.wrong("websocket needs tls, or no_tls: true where a proxy has it")
    read = read_tls(tls) if tls is not None else None
    return None if has_none else read
