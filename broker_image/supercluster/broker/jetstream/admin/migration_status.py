"""The status of migrations for the operator and administrators, from the map and from the reports of streams'
leaders. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.learning_slots import (
    AT_ONCE_MAX,
    UNDER_WAY_MAX,
    why_not_ready,
)
from supercluster.broker.jetstream.meta.migration import Migration, StreamMigration, StreamStage
from supercluster.broker.jetstream.meta.redirect_orders import is_all_open
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.migrations import scope_of
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.migration import plan
from supercluster.broker.migration.plan import Log, Stage, View
from supercluster.broker.protocol.client_reports import AccountClients

STALLED_MAX = 10
# Without headway for this long a stream is stalled: each step of a cutover takes less.
STALLED_MS = 3000
# Behind *finalize* green shows within seconds that it has a stream.
CLEANED_WITHIN_NS = 60_000_000_000
# Streams in one answer; of more the answer says how many there are.
STREAMS_MAX = 1000

_TURN = f"it begins when fewer than {AT_ONCE_MAX} streams that green takes, and fewer than {UNDER_WAY_MAX} in all, are between learning and open"

Facts = Mapping[str, StreamFacts | None]
"""By group: what the stream's leader says."""


@dataclass(frozen=True, slots=True)
class Clients:
    """Those of a migration's scope, by what the brokers of this super-cluster say."""

    found: AccountClients
    left: str
    """Why some are still to go, in words; empty: none is."""


def stage_of(
    found: Assignment, migration: Migration, facts: StreamFacts | None, *, redirected: bool = False
) -> Stage:
    """The furthest that the stream has reached. `redirected`: no client of the scope is still to go."""
    way = found.migration
    if way is None or way.id != migration.id:
        return Stage.PENDING
    said = str(facts.migrating.get("stage", "")) if facts is not None else ""
    view = View(
        attempt=way.attempt,
        log=Log(said) if way.stage is StreamStage.HANDING and said in (Log.FENCED, Log.HANDED) else Log.FREE,
        is_open=way.stage in (StreamStage.OPEN, StreamStage.CLEANED),
        clients_left=not (redirected or migration.final),
        final=migration.final,
        cleaned=way.stage is StreamStage.CLEANED,
    )
    return plan.stage_of(view)


def is_asked(found: Assignment) -> bool:
    """Does the stream's own leader know more of it than the map?"""
    return found.migration is not None and not found.far_world


def shown(
    state: MetaState, migration: Migration, facts: Facts, clients: Clients | None = None, now_ns: int = 0
) -> dict[str, Any]:
    """The whole of one, bounded. `now_ns`: the time; 0: nothing is late."""
    streams = scope_of(state, migration)
    told_clients = clients if clients is not None else Clients(AccountClients(), "")
    is_redirected = clients is not None and is_all_redirected(state, migration, clients)
    stages = dict.fromkeys(Stage, 0)
    lag_entries = lag_ms = 0
    stalled: list[dict[str, Any]] = []
    for found in streams:
        told = facts.get(found.group)
        stage = stage_of(found, migration, told, redirected=is_redirected)
        stages[stage] += 1
        why = _why_here(found, migration, now_ns)
        if is_asked(found):
            why = _why(told) if _is_stalled(told) else ""
            lag_entries = max(lag_entries, _count(told, "lag_entries"))
            lag_ms = max(lag_ms, _count(told, "lag_ms"))
        if why:
            stalled.append({"account": found.account, "name": found.name, "stage": stage, "why": why})
    left = sum(stages[stage] for stage in (Stage.PENDING, Stage.LEARNING, Stage.FENCED, Stage.HANDED))
    return {
        **_head(migration),
        "done": (bool(streams) or migration.final)
        and stages[Stage.CLEANED] == len(streams)
        and not migration.cancelled,
        "aborted": migration.cancelled and not left,
        "stages": stages,
        "worstLag": {"entries": lag_entries, "ms": lag_ms},
        "stalled": stalled[:STALLED_MAX],
        "stalledTotal": len(stalled),
        "clients": _clients(told_clients),
    }


def is_all_redirected(state: MetaState, migration: Migration, clients: Clients) -> bool:
    """Have the clients of the scope gone, so that the streams are redirected?"""
    return not migration.cancelled and not clients.left and is_all_open(state, migration)


def _clients(clients: Clients) -> dict[str, Any]:
    found = clients.found
    return {
        "cannot": found.cannot,
        "may": found.connections - found.cannot,
        "cannotNames": list(found.cannot_names),
        "stillOnBlue": found.connections,
        "staying": found.staying,
        "stayingNames": list(found.staying_names),
        "usersNotSeen": list(found.failing),
        "publishersStillOnBlue": found.publishing,
        "publishers": [asdict(each) for each in found.publishers],
        "left": clients.left,
    }


def _head(migration: Migration) -> dict[str, Any]:
    green = migration.green
    return {
        "id": migration.id,
        "account": migration.account,
        "green": {
            "identity": green.identity,
            "name": green.name,
            "addresses": list(green.addresses),
            "tlsName": green.tls_name,
            "world": migration.world,
        },
        "startedNs": migration.started_ns,
        "endedNs": migration.ended_ns,
        "cancelled": migration.cancelled,
        "final": migration.final,
    }


def _is_stalled(facts: StreamFacts | None) -> bool:
    """Does somebody have to hear of it? Green's refusals may repeat for ever, with headway between them."""
    if facts is None:
        return True
    return facts.migrating.get("refused") is True or _count(facts, "no_headway_ms") >= STALLED_MS


def _why(facts: StreamFacts | None) -> str:
    """What keeps the stream from going on; empty: nothing is known of it."""
    if facts is None:
        return "the stream's leader does not answer"
    return str(facts.migrating.get("why", ""))


def _why_here(found: Assignment, migration: Migration, now_ns: int) -> str:
    """Why the stream does not begin, or is not cleaned, by the map; empty: it goes on."""
    if found.migration is None:
        return why_not_ready(found)
    is_late = migration.final_ns > 0 and now_ns - migration.final_ns >= CLEANED_WITHIN_NS
    if not is_late or found.migration.stage is not StreamStage.OPEN:
        return ""
    return (
        "green does not show that it has the stream as it was handed over, and blue keeps its copies until it does; where the stream was "
        f"deleted or recovered by force on green, drop them by POST /admin/migrations/{migration.id}/discard on blue (docs/admin.md)"
    )


def _count(facts: StreamFacts | None, name: str) -> int:
    value = facts.migrating.get(name, 0) if facts is not None else 0
    return value if type(value) is int else 0


def blue_streams(
    state: MetaState,
    migration: Migration,
    facts: Facts,
    clients: Clients,
    after: str = "",
    now_ns: int = 0,
) -> dict[str, Any]:
    """Its streams by account and name, from the one behind `after` (`account/name`) on."""
    streams = [found for found in scope_of(state, migration) if _key(found) > after]
    redirected = is_all_redirected(state, migration, clients)
    told = [
        _blue(found, migration, facts.get(found.group), now_ns, redirected=redirected)
        for found in streams[:STREAMS_MAX]
    ]
    return _page(told, streams)


def _blue(
    found: Assignment, migration: Migration, facts: StreamFacts | None, now_ns: int, *, redirected: bool
) -> dict[str, Any]:
    mine = found.migration is not None and found.migration.id == migration.id
    way: StreamMigration | None = found.migration if mine else None
    stage = stage_of(found, migration, facts, redirected=redirected)
    why = _why(facts) if is_asked(found) else _why_here(found, migration, now_ns)
    return {
        "account": found.account,
        "name": found.name,
        "stage": stage,
        "attempt": way.attempt if way is not None else 0,
        "lastSeq": way.last_seq if way is not None else 0,
        "digest": way.digest if way is not None else "",
        "lagEntries": _count(facts, "lag_entries"),
        "why": why or (_TURN if stage is Stage.PENDING else ""),
    }


def comes_by(state: MetaState, migration_id: str) -> list[Assignment]:
    """Green's streams of a migration, by account and name."""
    return [
        found
        for _, found in sorted(state.streams.items())
        if (told := found.following or found.arrival) is not None and told.migration == migration_id
    ]


def green_streams(streams: Iterable[Assignment], facts: Facts, after: str = "") -> dict[str, Any]:
    left = [found for found in streams if _key(found) > after]
    return _page([_green(found, facts.get(found.group)) for found in left[:STREAMS_MAX]], left)


def _green(found: Assignment, facts: StreamFacts | None) -> dict[str, Any]:
    told = found.following or found.arrival
    assert told is not None
    arrival = found.arrival
    return {
        "account": found.account,
        "name": found.name,
        "state": "open" if arrival is not None else _hidden(facts),
        "why": _why(facts) if facts is not None else "",
        "attempt": told.attempt,
        "lastSeq": arrival.last_seq if arrival is not None else 0,
        "digest": arrival.digest if arrival is not None else "",
        "consumers": facts.consumers if facts is not None else 0,
    }


def _hidden(facts: StreamFacts | None) -> str:
    is_refused = facts is not None and facts.migrating.get("stage") == "refused"
    return "refused" if is_refused else "hidden"


def _page(told: list[dict[str, Any]], streams: list[Assignment]) -> dict[str, Any]:
    more = len(streams) - len(told)
    return {"streams": told, **({"more": more, "after": _key(streams[len(told) - 1])} if more else {})}


def _key(found: Assignment) -> str:
    return f"{found.account}/{found.name}"


def handed(state: MetaState) -> dict[str, Any]:
    """Streams that blue's operator leaves alone (rule 18)."""
    told = []
    for key in sorted(state.migrating):
        found = state.streams[key]
        way = found.migration
        if way is not None and way.stage is not StreamStage.LEARNING:
            migration = state.migrations.get(way.id)
            green = migration.green.name or migration.green.identity if migration is not None else way.world
            told.append(
                {
                    "account": found.account,
                    "name": found.name,
                    "id": way.id,
                    "stage": str(way.stage),
                    "green": green,
                }
            )
    return {"streams": told}
