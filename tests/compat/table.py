"""The table of the compatibility suite: one row per behaviour that a NATS client can see.

A row is an async function that is handed a `Bench` (`bench.py`) and asserts what it sees. It is registered with an id, a
title that says the behaviour, and the servers it runs on, and has to pass on every one of them: on ours, and on
nats-server, so that the suite is known to say what NATS does::

    rows = Group("core")

    @rows("ping", "a PING is answered with PONG")
    async def ping(b: Bench) -> None: ...

Rows live in `rows/`, a module per subject, and what differs on purpose in `differs/` (`differences.py`); a module that is put
there is found by itself.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.compat.bench import Bench

Run = Callable[["Bench"], Awaitable[None]]

OURS_1, OURS_3, NATS_1, NATS_3 = "ours-1", "ours-3", "nats-1", "nats-3"
"""A single broker of ours, a cluster of three; nats-server alone, and three of it."""

OURS_3_RESTLESS, OURS_3X2_RESTLESS = "ours-3-restless", "ours-3x2-restless"
"""Three brokers of ours whose leaders step down all the time; two such clusters, whose streams move between them as well.
No row names them: what runs on `OURS_3` runs there (`restless.py`)."""

TARGETS = (OURS_1, OURS_3, NATS_1, NATS_3)
RESTLESS = (OURS_3_RESTLESS, OURS_3X2_RESTLESS)
EVERYWHERE = (OURS_1, OURS_3, NATS_1)
"""Where rows run unless they say otherwise: nats-server alone is enough to show what NATS does."""
CLUSTERS = (OURS_3, NATS_3)
"""For rows about what only a cluster has."""
SINGLES = (OURS_1, NATS_1)
"""For rows that a cluster answers in another way, or that are about one process."""
ALL = TARGETS
NOT_ON_NATS_3 = frozenset(
    {
        "advisories.api",
        "consumers.call.no-stream",
        "consumers.create.refused.direct",
        "consumers.pause.call",
        "consumers.update.workqueue.filters",
        "consumers.update.workqueue.order",
        "differs.create.position",
        "differs.origins.own-domain",
        "differs.tracing.judgement",
        "external.missing",
        "fast.error.fail",
        "kv.full",
        "levels.too_high",
        "messages.headers.blanks",
        "origins.mirror.full",
        "origins.mirror.missing",
        "publish.expected-msg-id",
        "publish.order",
        "publish.stream-source.order",
        "pull.max-bytes",
        "pull.max-bytes.batch",
        "refusals.consumers.direct-durable",
        "refusals.create.schedules-discard-new",
        "refusals.names.consumer-length",
        "refusals.no-stream",
        "snapshots.bucket",
        "snapshots.consumers",
        "snapshots.consumers.filter",
        "snapshots.consumers.redelivered",
        "snapshots.interest",
        "snapshots.refused",
        "snapshots.restore.again",
        "snapshots.restore.consumers-refused",
        "snapshots.workqueue",
        "streams.account-info.storage",
        "streams.limits.per-subject.discard-new",
        "streams.limits.per-subject.discard-new.bytes",
        "system.account.jsz",
        "tracing.alone",
        "tracing.stream",
    }
)
"""Rows that nats-server alone passes and three of them do not: a cluster refuses with other codes, refuses backups' consumers until their
stream has a leader, and applies a limit per subject after the acknowledgement."""


@dataclass(frozen=True)
class Settings:
    """Settings that a row's servers need; rows with the same ones share a fleet.

    `ours` goes into our broker's settings file, `credentials` beside it (`{"users.json": {...}}`); `nats` into
    nats-server's configuration.
    """

    name: str
    ours: Mapping[str, Any] = field(default_factory=dict)
    credentials: Mapping[str, Any] = field(default_factory=dict)
    nats: Mapping[str, Any] = field(default_factory=dict)
    login: Mapping[str, Any] = field(default_factory=dict)
    """What nats-py's `connect` needs there (user, password); rows may connect otherwise by themselves."""
    constants: Mapping[str, int] = field(default_factory=dict)
    """Constants of our broker's modules that have other values (`tests/support/broker_forks.py`)."""
    files: Callable[[Path], Mapping[str, Any]] | None = None
    """Puts files into the servers' folder, which is {folder} in their settings; returns what `connect` needs besides."""


PLAIN = Settings("plain")


@dataclass(frozen=True)
class Row:
    """One behaviour."""

    id: str
    title: str
    run: Run
    on: tuple[str, ...] = EVERYWHERE
    settings: Settings = PLAIN

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]


ROWS: dict[str, Row] = {}
"""All rows by id, in the order of their registration."""


def register(row: Row) -> None:
    """Add a row; an id is given once."""
    assert row.id not in ROWS, f"two rows are called {row.id}"
    ROWS[row.id] = row


class Group:
    """Registers the rows of one group."""

    def __init__(self, name: str, *, on: tuple[str, ...] = EVERYWHERE, settings: Settings = PLAIN) -> None:
        self.name = name
        self.on = on
        self.settings = settings

    def __call__(
        self, name: str, title: str, *, on: tuple[str, ...] | None = None, settings: Settings | None = None
    ) -> Callable[[Run], Run]:
        """Register the decorated function as row `<group>.<name>`."""

        def add(run: Run) -> Run:
            register(Row(f"{self.name}.{name}", title, run, on or self.on, settings or self.settings))
            return run

        return add


def load() -> list[Row]:
    """Every row of every module in `rows/`, and every difference."""
    for folder in ("rows", "differs"):
        for path in sorted((Path(__file__).parent / folder).glob("*.py")):
            importlib.import_module(f"tests.compat.{folder}.{path.stem}")
    return list(ROWS.values())
