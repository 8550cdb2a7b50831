"""Findings that would keep a migration from succeeding, from blue's map and its clients, before the migration
begins.

Each finding names the object that causes it. Pure: the same map gives the same findings. `green_preflight.py`
asks green about names, room and limits, which only green knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from supercluster.broker.jetstream.config.carried import why_not_carried
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.protocol.client_reports import AccountClients

# Findings that an answer names; of the others the last one says how many there are.
FINDINGS_MAX = 200


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact, about one stream or about the whole."""

    level: str
    """`refused` or `warn`."""
    code: str
    subject: str
    message: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def is_refused(findings: Iterable[Finding]) -> bool:
    return any(found.level == "refused" for found in findings)


def judge(streams: Sequence[Assignment], wanted: Migration, own_world: str) -> list[Finding]:
    """Of the streams in scope."""
    found: list[Finding] = []
    if wanted.world == own_world:
        found.append(
            Finding(
                "refused",
                "SameIdentity",
                wanted.green.identity,
                "blue and green are the same super-cluster",
                "name another super-cluster as green",
            )
        )
    if not streams:
        scope = f"account {wanted.account}" if wanted.account else "any account"
        found.append(
            Finding(
                "refused",
                "ScopeEmpty",
                wanted.account,
                f"{scope} has no stream that could go",
                "name an account that has streams, or none for all",
            )
        )
    for stream in streams:
        found += _of_stream(stream)
    return found


def of_clients(
    clients: AccountClients, wanted: Migration, *, takes_tls: bool = True, takes_plain: bool = True
) -> list[Finding]:
    """Of the connections in scope. What green's port for clients takes is known once green has answered."""
    level = "warn" if wanted.bridges else "refused"
    found: list[Finding] = []
    if clients.cannot:
        names = ", ".join(clients.cannot_names[:3])
        message = f"{clients.cannot} connected clients cannot be sent to another server ({names})"
        remedy = "connect them to green, or have them bridged (cannotFollow: bridge)"
        found.append(Finding(level, "ClientsCannotFollow", names, message, remedy))
    plain = clients.connections - clients.cannot - clients.tls
    for count, is_taken, use, setting in (
        (clients.tls, takes_tls, "TLS", "clientTls"),
        (plain, takes_plain, "no TLS", "allowPlain in clientTls"),
    ):
        if count and not is_taken:
            message = f"{count} connected clients use {use}, and green's port for clients does not take that"
            remedy = f"set {setting} of green's brokers, or have them bridged (cannotFollow: bridge)"
            found.append(Finding(level, "ClientsCannotFollow", use, message, remedy))
    return found


def _of_stream(stream: Assignment) -> list[Finding]:
    subject = f"{stream.account}/{stream.name}"
    found = [
        Finding(
            "refused",
            "NotCarried",
            subject,
            f"stream {stream.name} {why}, which this version cannot hand over",
            "delete it, change it, or migrate an account without it",
        )
        for why in why_not_carried(stream.config)
    ]
    if stream.move is not None:
        found.append(
            Finding(
                "warn",
                "OpenMove",
                subject,
                f"stream {stream.name} moves (move {stream.move.id})",
                "it goes when the move has ended; cancel the move to have it go sooner",
            )
        )
    if stream.is_unconfirmed or stream.is_short:
        found.append(
            Finding(
                "warn",
                "OpenMove",
                subject,
                f"stream {stream.name} is not whole since a forced recovery",
                "it goes when all of its replicas are there",
            )
        )
    return found


def shown(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """For an answer, bounded; what refuses comes first."""
    findings = sorted(findings, key=lambda one: one.level != "refused")
    told = [found.to_json() for found in findings[:FINDINGS_MAX]]
    more = len(findings) - FINDINGS_MAX
    if more > 0:
        told.append(
            Finding(
                "warn", "More", "", f"{more} more findings are not shown", "deal with these first"
            ).to_json()
        )
    return told
