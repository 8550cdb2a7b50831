"""Answers of brokers about a migration, in the form for the planner. All input is treated as untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from supercluster.api.migration import (
    PUBLISHED_STREAMS_MAX,
    PUBLISHERS_MAX,
    STALLED_MAX,
    ClientCounts,
    Finding,
    Lag,
    PreflightReport,
    Publisher,
    StageCounts,
    StalledStream,
)
from supercluster.reconcilers.observe.views import DEFAULT_ACCOUNT
from supercluster.reconcilers.planners.migration.preflight import report
from supercluster.reconcilers.planners.migration.views import Handed, MigrationView
from supercluster.reconcilers.planners.status import timestamp
from supercluster.reconcilers.ports import mapping

NS_PER_S = 1_000_000_000
# The year 2200: what is beyond it is no time at which anything began.
INSTANT_MAX_NS = 7_258_118_400 * NS_PER_S
TEXT_CHARACTERS_MAX = 1_000
NAME_CHARACTERS_MAX = 253


def migration_view(answer: Mapping[str, Any]) -> MigrationView:
    """The answer to GET /admin/migrations/<id>."""
    stages, lag, clients = (mapping(answer.get(part)) for part in ("stages", "worstLag", "clients"))
    stalled = [mapping(entry) for entry in answer.get("stalled") or ()]
    return MigrationView(
        started=instant(answer.get("startedNs")),
        is_cancelled=answer.get("cancelled") is True,
        is_final=answer.get("final") is True,
        is_done=answer.get("done") is True,
        is_aborted=answer.get("aborted") is True,
        stages=StageCounts(**{name: _count(stages.get(name)) for name in StageCounts.model_fields}),
        lag=Lag(entries=_count(lag.get("entries")), milliseconds=_count(lag.get("ms"))),
        stalled=tuple(map(_stalled, stalled[:STALLED_MAX])),
        stalled_total=max(_count(answer.get("stalledTotal")), len(stalled)),
        clients=ClientCounts(
            cannot=_count(clients.get("cannot")),
            may=_count(clients.get("may")),
            still_on_blue=_count(clients.get("stillOnBlue")),
            publishers_still_on_blue=_count(clients.get("publishersStillOnBlue")),
            publishers=tuple(
                map(_publisher, map(mapping, list(clients.get("publishers") or ())[:PUBLISHERS_MAX]))
            ),
        ),
    )


def _publisher(entry: Mapping[str, Any]) -> Publisher:
    streams = list(entry.get("streams") or ())[:PUBLISHED_STREAMS_MAX]
    return Publisher(
        **{
            key: text(entry.get(key), NAME_CHARACTERS_MAX)
            for key in ("name", "account", "user", "address", "language")
        },
        messages=_count(entry.get("messages")),
        streams=tuple(text(name, NAME_CHARACTERS_MAX) for name in streams),
    )


def _stalled(entry: Mapping[str, Any]) -> StalledStream:
    return StalledStream(
        account=text(entry.get("account"), NAME_CHARACTERS_MAX),
        name=text(entry.get("name"), NAME_CHARACTERS_MAX),
        stage=text(entry.get("stage"), NAME_CHARACTERS_MAX),
        reason=text(entry.get("why"), TEXT_CHARACTERS_MAX),
    )


def preflight_report(answer: Mapping[str, Any], now: datetime) -> PreflightReport:
    """The answer to POST /admin/migrations/preflight."""
    findings = [
        Finding(
            level="Refused" if entry.get("level") != "warn" else "Warning",
            code=text(entry.get("code"), 64) or "Unknown",
            subject=text(entry.get("subject"), NAME_CHARACTERS_MAX),
            message=text(entry.get("message"), TEXT_CHARACTERS_MAX),
            remedy=text(entry.get("remedy"), TEXT_CHARACTERS_MAX),
        )
        for entry in map(mapping, answer.get("findings") or ())
    ]
    clients = mapping(answer.get("clients"))
    return report(
        findings,
        timestamp(now),
        streams=_count(answer.get("streams")),
        bytes=_count(answer.get("bytes")),
        clients_cannot=_count(clients.get("cannot")),
        clients_may=_count(clients.get("may")),
    )


def blue_stream(answer: Mapping[str, Any]) -> Handed:
    return _handed(answer, str(answer.get("stage", "")))


def green_stream(answer: Mapping[str, Any]) -> Handed:
    return _handed(answer, str(answer.get("state", "")))


def _handed(answer: Mapping[str, Any], stage: str) -> Handed:
    account, name = str(answer.get("account", DEFAULT_ACCOUNT)), str(answer.get("name", ""))
    return Handed(
        name=name if account == DEFAULT_ACCOUNT else f"{name} of account {account}",
        stage=stage,
        attempt=_count(answer.get("attempt")),
        last_sequence=_count(answer.get("lastSeq")),
        digest=str(answer.get("digest") or ""),
        consumers=_count(answer.get("consumers")),
    )


def _count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def text(value: Any, most: int) -> str:
    return value[:most] if isinstance(value, str) else ""


def instant(ns: Any) -> datetime | None:
    if type(ns) is not int or not 0 < ns < INSTANT_MAX_NS:
        return None
    return datetime.fromtimestamp(ns / NS_PER_S, UTC)
