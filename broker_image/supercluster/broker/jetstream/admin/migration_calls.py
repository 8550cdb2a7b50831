"""Migrations to another super-cluster over HTTP (`/admin/migrations`, `docs/admin.md`): preflight, start,
status, abort, finalize, takeback, discard.

The broker that receives a changing call forwards it to the meta group's leader as an internal request, on a
subject that no client can publish to. A call may be repeated: a change that is already in force is answered
at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from supercluster.broker.bounds import read_json
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin import migration_preflight, migration_status
from supercluster.broker.jetstream.admin.call import NO_CALL, Caller, MetaCall, Then, refusal
from supercluster.broker.jetstream.admin.green_preflight import GreenPreflight
from supercluster.broker.jetstream.admin.migration_call import TakeBack, read_id, read_start, read_take_back
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration import Migration
from supercluster.broker.jetstream.meta.migration_starts import judge_start
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.migrations import scope_of
from supercluster.broker.jetstream.node.far_clients import FarClients
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.neighbours import Neighbours
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts

if TYPE_CHECKING:
    from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader

PREFIX = b"$SC.MIGRATION."
START, ABORT, FINALIZE = PREFIX + b"START", PREFIX + b"ABORT", PREFIX + b"FINALIZE"
TAKE_BACK, DISCARD = PREFIX + b"TAKEBACK", PREFIX + b"DISCARD"
_FORCED = (TAKE_BACK, DISCARD)
"""What a person does to one stream."""
# Streams whose leaders are asked for one answer; of the others the answer has what the map knows.
ASKED_MAX = 64


class MigrationCalls:
    """The calls at the broker that was asked."""

    def __init__(
        self,
        env: Environment,
        map_view: MapView,
        neighbours: Neighbours,
        lost_clusters: LostClusters,
        far_clients: FarClients,
        green_preflight: GreenPreflight,
        caller: Caller,
    ) -> None:
        self._far_clients = far_clients
        self._green_preflight = green_preflight
        self._env = env
        self._map = map_view
        self._neighbours = neighbours
        self._lost_clusters = lost_clusters
        self._caller = caller

    def call(self, act: str, migration_id: str, body: object, then: Then) -> None:
        """`act`: preflight, start, list, handed, status, streams, abort, finalize, takeback or discard. `then` is called once."""
        try:
            self._acts[act](self, migration_id, body, then)
        except ApiError as refused:
            then(*refusal(refused))

    # ---- what changes something -----------------------------------------------------------------------------------

    def _preflight(self, migration_id: str, body: object, then: Then) -> None:
        wanted = read_start(body)
        streams = self._scope(self._state, wanted)

        def judged(findings: list[migration_preflight.Finding], bytes_total: int) -> None:
            clients = self._far_clients.clients_of(wanted)
            told = {
                "cannot": clients.cannot,
                "may": clients.connections - clients.cannot,
                "cannotNames": list(clients.cannot_names),
            }
            answer = {"streams": len(streams), "bytes": bytes_total, "clients": told}
            then(200, {"findings": migration_preflight.shown(findings), **answer})

        self._judge(wanted, streams, judged)

    def _start(self, migration_id: str, body: object, then: Then) -> None:
        wanted = read_start(body)
        state = self._state
        judge_start(state, wanted)

        def judged(findings: list[migration_preflight.Finding], bytes_total: int) -> None:
            first = next((found for found in findings if found.level == "refused"), None)
            if first is None:
                start()
                return
            status, answer = refusal(errors.error(errors.PREFLIGHT_REFUSED, first.message))
            then(status, {**answer, "findings": migration_preflight.shown(findings)})

        def start() -> None:
            self._caller.ask("$SYS", START, json.dumps(wanted.to_json()).encode(), then)

        if wanted.id in state.migrations:
            start()
        else:
            self._judge(wanted, self._scope(state, wanted), judged)

    def _judge(
        self,
        wanted: Migration,
        streams: list[Assignment],
        then: Callable[[list[migration_preflight.Finding], int], None],
    ) -> None:
        """By blue's map, its streams' leaders and its clients; then by green, unless that is blue itself."""
        findings = migration_preflight.judge(streams, wanted, self._env.settings.world)
        self._far_clients.ask()

        def told(facts: migration_status.Facts) -> None:
            sizes = {group: found.message_bytes for group, found in facts.items() if found is not None}
            total = sum(sizes.values())
            in_files = sum(
                sizes.get(found.group, 0) * found.config.num_replicas
                for found in streams
                if found.config.storage == "file"
            )
            if wanted.world == self._env.settings.world:
                then(findings, total)
                return
            self._green_preflight.ask(
                wanted,
                streams,
                in_files,
                lambda more: then([*findings, *self._of_clients(wanted), *more], total),
            )

        self._facts(streams, told, everything=True)

    def _of_clients(self, wanted: Migration) -> list[migration_preflight.Finding]:
        takes_tls, takes_plain = self._far_clients.takes(wanted.world)
        clients = self._far_clients.clients_of(wanted)
        return migration_preflight.of_clients(clients, wanted, takes_tls=takes_tls, takes_plain=takes_plain)

    def _end(self, subject: bytes, migration_id: str, body: object, then: Then) -> None:
        told = json.dumps({"id": read_id(migration_id)}).encode()
        self._caller.ask("$SYS", subject, told, then)

    def _force(self, subject: bytes, migration_id: str, body: object, then: Then) -> None:
        told = {"id": read_id(migration_id), "stream": read_take_back(body).to_json()}
        self._caller.ask("$SYS", subject, json.dumps(told).encode(), then)

    # ---- what there is --------------------------------------------------------------------------------------------

    def _list(self, migration_id: str, body: object, then: Then) -> None:
        state = self._state
        streams = [found for migration in state.migrations.values() for found in scope_of(state, migration)]

        def told(facts: migration_status.Facts) -> None:
            then(
                200,
                {
                    "migrations": [
                        migration_status.shown(state, m, facts, self._clients(m), self._now_ns)
                        for m in state.migrations.values()
                    ]
                },
            )

        self._facts(streams, told)

    def _handed(self, migration_id: str, body: object, then: Then) -> None:
        then(200, migration_status.handed(self._state))

    def _status(self, migration_id: str, body: object, then: Then) -> None:
        state = self._state
        migration = self._known(state, migration_id)
        self._facts(
            scope_of(state, migration),
            lambda facts: then(
                200,
                migration_status.shown(state, migration, facts, self._clients(migration), self._now_ns),
            ),
        )

    def _streams(self, migration_id: str, body: object, then: Then) -> None:
        """On blue by its record; on green by what came, or comes, under that id."""
        state = self._state
        after = str(body.get("after", "")) if isinstance(body, dict) else ""
        migration = state.migrations.get(read_id(migration_id))
        if migration is not None:
            self._facts(
                scope_of(state, migration),
                lambda facts: then(
                    200,
                    migration_status.blue_streams(
                        state, migration, facts, self._clients(migration), after, self._now_ns
                    ),
                ),
            )
            return
        came = migration_status.comes_by(state, migration_id)
        if not came:
            raise errors.error(errors.NO_MIGRATION, migration_id)
        self._facts(
            came,
            lambda facts: then(200, migration_status.green_streams(came, facts, after)),
            everything=True,
        )

    _acts: dict[str, Callable[[MigrationCalls, str, object, Then], None]] = {
        "preflight": _preflight,
        "start": _start,
        "list": _list,
        "handed": _handed,
        "status": _status,
        "streams": _streams,
        "abort": lambda self, migration_id, body, then: self._end(ABORT, migration_id, body, then),
        "takeback": lambda self, migration_id, body, then: self._force(TAKE_BACK, migration_id, body, then),
        "discard": lambda self, migration_id, body, then: self._force(DISCARD, migration_id, body, then),
        "finalize": lambda self, migration_id, body, then: self._end(FINALIZE, migration_id, body, then),
    }

    @property
    def _state(self) -> MetaState:
        """Never a map that may be old: to the caller "no migration" means that its own never began.

        Raises:
            ApiError: it was not read.
        """
        if self._map.replica is None or not self._map.is_fresh:
            raise self._lost_clusters.not_available()
        return self._map.replica.state

    @property
    def _now_ns(self) -> int:
        return self._env.clock.now_ns()

    def _known(self, state: MetaState, migration_id: str) -> Migration:
        found = state.migrations.get(read_id(migration_id))
        if found is None:
            raise errors.error(errors.NO_MIGRATION, migration_id)
        return found

    def _clients(self, migration: Migration) -> migration_status.Clients:
        return migration_status.Clients(
            self._far_clients.clients_of(migration), self._far_clients.left(migration)
        )

    def _scope(self, state: MetaState, wanted: Migration) -> list[Assignment]:
        return [
            found
            for key, found in sorted(state.streams.items())
            if found.is_shown and found.migration is None and wanted.covers(key[0])
        ]

    def _facts(
        self,
        streams: list[Assignment],
        then: Callable[[migration_status.Facts], None],
        *,
        everything: bool = False,
    ) -> None:
        """Ask the leaders of those of which they know more than the map, within the bound that each question has."""
        asked = [found for found in streams if everything or migration_status.is_asked(found)][:ASKED_MAX]
        facts: dict[str, StreamFacts | None] = {}
        if not asked:
            then(facts)
            return

        def told(group: str, found: StreamFacts | None) -> None:
            facts[group] = found
            if len(facts) == len(asked):
                then(facts)

        for found in asked:
            self._neighbours.ask_stream(found, partial(told, found.group))


# ---- at the meta group's leader --------------------------------------------------------------------------------------


def is_internal(subject: bytes) -> bool:
    return subject.startswith(PREFIX)


def answer(meta: MapLeader, call: MetaCall) -> None:
    """Another broker's call, at the meta group's leader."""
    subject = call.request.subject
    try:
        told = read_json(call.request.payload)
        wanted = Migration.from_json(told) if subject == START else None
        migration_id = str(told["id"])
        taken = TakeBack(**told["stream"]) if subject in _FORCED else None
    except NO_CALL:
        call.refuse()
        return
    before = meta.state.migrations.get(migration_id)

    def answered(refused: ApiError | None) -> None:
        if refused is not None:
            call.respond(*refusal(refused))
            return
        found = meta.state.migrations.get(migration_id)
        document: dict[str, Any] = {} if found is None else migration_status.shown(meta.state, found, {})
        call.respond(200 if _was_so(subject, before) else 202, document)

    if wanted is not None:
        meta.migrations.start(wanted, answered, call.undecided)
    elif taken is not None:
        key = taken.account, taken.stream
        force = meta.migrations.take_back if subject == TAKE_BACK else meta.migrations.discard
        force(migration_id, key, taken.attempt, answered, call.undecided)
    elif subject == ABORT:
        meta.migrations.abort(migration_id, answered, call.undecided)
    elif subject == FINALIZE:
        meta.migrations.finalize(migration_id, answered, call.undecided)
    else:
        call.refuse()


def _was_so(subject: bytes, before: Migration | None) -> bool:
    """Did the call change nothing?"""
    if before is None or subject in _FORCED:
        return False
    return subject == START or (before.cancelled if subject == ABORT else before.final)
