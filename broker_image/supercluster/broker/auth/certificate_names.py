"""The user that a client's certificate names: by e-mail address, DNS name or URI, or by the whole subject.

The certificate has the form in which `ssl` returns a verified one. A subject is written as CN=app,O=Example;
neither the order nor spaces after the commas matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_SHORT = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "streetAddress": "STREET",
    "postalCode": "POSTALCODE",
    "domainComponent": "DC",
    "userId": "UID",
    "serialNumber": "SERIALNUMBER",
    "emailAddress": "EMAILADDRESS",
}
_KINDS = ("email", "DNS", "URI")
"""In the order in which they are looked at."""


def user_of(certificate: Mapping[str, Any], users: Iterable[str]) -> str | None:
    """The first of the users whom the certificate names."""
    known = list(users)
    others = certificate.get("subjectAltName", ())
    for kind in _KINDS:
        for found, name in others:
            if found == kind and name in known:
                return str(name)
    subject = sorted(
        (_SHORT.get(name, name).upper(), value)
        for part in certificate.get("subject", ())
        for name, value in part
    )
    if not subject:
        return None
    return next((user for user in known if parts_of(user) == subject), None)


def parts_of(text: str) -> list[tuple[str, str]] | None:
    """The parts of a subject as it is written, sorted; None when it is no subject."""
    parts: list[tuple[str, str]] = []
    for part in _split(text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            return None
        parts.append((name.strip().upper(), value.strip()))
    return sorted(parts)


def _split(text: str) -> list[str]:
    """At commas, except where a backslash stands before one."""
    parts, escaped = [""], False
    for sign in text:
        if escaped or sign not in ",\\":
            parts[-1] += sign
            escaped = False
        elif sign == "\\":
            escaped = True
        else:
            parts.append("")
    return parts
