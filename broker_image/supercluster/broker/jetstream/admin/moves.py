"""Moves and changes of the replica count on behalf of the operator, behind `/admin/streams/…/move`: plan (a
dry run), start, cancel and status.

The broker that receives a call forwards it to the meta group's leader as an internal request, on a subject
that no client can publish to. An outcome is an HTTP status and a JSON object.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from supercluster.broker.bounds import read_json
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.admin.call import (
    NO_CALL,
    Caller,
    MetaCall,
    Then,
    refusal,
)
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.config.stream import REPLICAS_MAX, Placement
from supercluster.broker.jetstream.config.stream_checks import check_name
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.leaderless_moves import taking_part
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader
from supercluster.broker.jetstream.meta_leader.stream_request import Decided, Fallen, StreamRequest
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.jetstream.node.neighbours import Neighbours
from supercluster.broker.jetstream.placement.dry_run import MovePlan
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.raft.confchange import node_of

PREFIX = b"$SC.MOVE."
_VERBS = {b"$SC.MOVE.PLAN": "plan_move", b"$SC.MOVE.START": "move", b"$SC.MOVE.CANCEL": "cancel_move"}
BYTES_PER_S_MAX = 1 << 40
# A day: a broker that nobody has seen for so long and that holds nothing is forgotten.
AWAY_MS_MAX = 24 * 3_600_000
_GOALS = frozenset({"placement", "replicas", "replace", "add", "remove"})
_NAMING = ("replace", "add", "remove")
_FIELDS = _GOALS | {"awayMs", "minUsable", "nodes", "bytesPerS", "dryRun", "id"}
_ID = re.compile("[A-Za-z0-9-]{0,64}")


@dataclass(frozen=True, slots=True)
class MoveCall:
    """A POST's body."""

    placement: Placement | None = None
    replicas: int = 0
    """Another count of replicas, instead of a placement; 0: none."""
    replace: tuple[str, ...] = ()
    """Instead of both: the brokers in whose places others come, in one change."""
    add: tuple[str, ...] = ()
    """Instead of all that: brokers that get a replica beyond the count."""
    remove: tuple[str, ...] = ()
    """Instead of all that: brokers whose replicas beyond the count go."""
    min_usable: int = 0
    """With `remove`: refuse unless so many usable replicas are left; 0: as many as the count says may be any."""
    away_ms: int = 0
    """With `replace`: refuse unless the map says that they have been out of contact for so long."""
    nodes: tuple[str, ...] = ()
    """Of a start: the brokers of the plan, no others will do; empty: whichever are best now."""
    bytes_per_s: int = 0
    dry_run: bool = False
    id: str = ""
    """The caller's name for the move: a call that is repeated with it starts nothing new. Empty: one is made."""


def read_call(body: object) -> MoveCall:
    """
    Raises:
        ApiError: naming the field, its value and what would be right.
    """
    if not isinstance(body, Mapping) or not _GOALS & body.keys():
        raise errors.error(
            10052, 'the body has to be an object with "placement", "replicas", "replace", "add" or "remove"'
        )
    unknown = sorted(set(body) - _FIELDS)
    if unknown:
        raise errors.error(10052, f"{unknown[0]} is no known field; known are {', '.join(sorted(_FIELDS))}")
    if len(_GOALS & body.keys()) > 1:
        raise errors.error(10123)
    bytes_per_s, dry_run = body.get("bytesPerS", 0), body.get("dryRun", False)
    placement, replicas = body.get("placement"), body.get("replicas", 0)
    replace, add, remove = (_read_names(body, goal) for goal in _NAMING)
    named = replace or add or remove
    if type(replicas) is not int or not (placement is not None or named or 1 <= replicas <= REPLICAS_MAX):
        raise errors.error(
            10052, f"replicas is {replicas!r}; it has to be a whole number from 1 to {REPLICAS_MAX}"
        )
    if type(bytes_per_s) is not int or not 0 <= bytes_per_s <= BYTES_PER_S_MAX:
        raise errors.error(
            10052,
            f"bytesPerS is {bytes_per_s!r}; it has to be a whole number from 0 (no limit) to {BYTES_PER_S_MAX}",
        )
    if not isinstance(dry_run, bool):
        raise errors.error(10052, f"dryRun is {dry_run!r}; it has to be true or false")
    if not replicas and not named and not isinstance(placement, Mapping):
        raise errors.error(10052, f"placement is {placement!r}; it has to be an object")
    move_id = read_id(body)
    where = Placement.from_json(placement) if placement is not None else None
    nodes = _read_nodes(body, dry_run=dry_run and not replace)
    return MoveCall(
        placement=where,
        replicas=replicas,
        replace=replace,
        add=add,
        remove=remove,
        min_usable=_read_count(body, "minUsable", REPLICAS_MAX),
        away_ms=_read_count(body, "awayMs", AWAY_MS_MAX),
        nodes=nodes,
        bytes_per_s=bytes_per_s,
        dry_run=dry_run,
        id=move_id,
    )


def read_id(body: object) -> str:
    """The move that is meant; empty: none was named.

    Raises:
        ApiError: it is no name of a move.
    """
    move_id = body.get("id", "") if isinstance(body, Mapping) else ""
    if not isinstance(move_id, str) or not _ID.fullmatch(move_id):
        raise errors.error(10052, f"id is {move_id!r}; it has to be at most 64 letters, digits and dashes")
    return move_id


def _read_names(body: Mapping[str, Any], goal: str) -> tuple[str, ...]:
    """Brokers, each once."""
    if goal not in body:
        return ()
    nodes = body[goal]
    is_list = isinstance(nodes, list) and 1 <= len(nodes) <= REPLICAS_MAX
    if not is_list or not all(isinstance(node, str) and node for node in nodes):
        raise errors.error(
            10052, f"{goal} is {nodes!r}; it has to be a list of 1 to {REPLICAS_MAX} names of brokers"
        )
    return tuple(dict.fromkeys(nodes))


def _read_count(body: Mapping[str, Any], name: str, most: int) -> int:
    value = body.get(name, 0)
    if type(value) is not int or not 0 <= value <= most:
        raise errors.error(10052, f"{name} is {value!r}; it has to be a whole number from 0 to {most}")
    return value


def _read_nodes(body: Mapping[str, Any], *, dry_run: bool) -> tuple[str, ...]:
    nodes = body.get("nodes", [])
    is_list = isinstance(nodes, list) and len(nodes) <= REPLICAS_MAX
    if not is_list or not all(isinstance(node, str) and node for node in nodes) or (nodes and dry_run):
        raise errors.error(
            10052,
            f"nodes is {nodes!r}; it has to be a list of at most {REPLICAS_MAX} names of brokers, and none with dryRun",
        )
    return tuple(nodes)


# ---- at the broker that was asked ------------------------------------------------------------------------------------


class MoveCalls:
    """The calls at the broker that was asked."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        map_view: MapView,
        neighbours: Neighbours,
        lost_clusters: LostClusters,
        caller: Caller,
    ) -> None:
        self._env = env
        self._peers = peers
        self._map = map_view
        self._neighbours = neighbours
        self._lost_clusters = lost_clusters
        self._caller = caller

    def call(self, method: str, account: str, name: str, body: object, then: Then) -> None:
        """One call of the admin API; `then` is called once, within the time that any request has."""
        try:
            check_name(name)
            if method == "GET":
                self._state(account, name, then)
                return
            fields: dict[str, Any] = {"account": account, "name": name}
            subject = PREFIX + b"CANCEL"
            if method == "DELETE" and body is not None:
                fields["id"] = read_id(body)
            if method == "POST":
                wanted = read_call(body)
                subject = PREFIX + (b"PLAN" if wanted.dry_run else b"START")
                fields |= {"bytes_per_s": wanted.bytes_per_s, "id": wanted.id, "replicas": wanted.replicas}
                fields["nodes"] = list(wanted.nodes)
                fields |= {"replace": list(wanted.replace), "away_ms": wanted.away_ms}
                fields |= {
                    "add": list(wanted.add),
                    "remove": list(wanted.remove),
                    "min_usable": wanted.min_usable,
                }
                if wanted.placement is not None:
                    fields["placement"] = wanted.placement.to_json()
        except ApiError as refused:
            then(*refusal(refused))
            return

        self._caller.ask(account, subject, json.dumps(fields).encode(), then)

    def running(self) -> tuple[int, dict[str, Any]]:
        """All moves that run in the super-cluster, whoever asked for them, by this broker's map: of every account, with the
        brokers that have a part in each."""
        if self._map.replica is None or not self._map.is_fresh:
            return self._caller.not_available()
        state = self._map.replica.state
        contact = self._peers.brokers_in_contact()
        return 200, {"moves": [_running(state.streams[key], contact) for key in sorted(state.moving)]}

    def _state(self, account: str, name: str, then: Then) -> None:
        """The move that runs, with what the stream's leader says of it, and how the last one ended.

        Never by a map that may be old: to the caller "no move" means that its own has ended, or never began.
        """
        if self._map.replica is None or not self._map.is_fresh:
            raise self._lost_clusters.not_available()
        found = self._map.replica.state.streams.get((account, name))
        if found is None:
            raise errors.error(10059)
        leaderless = self._neighbours.leaderless
        if found.move is None:
            leaderless.heard(found.group)
            then(200, _show(found, None))
            return

        def told(facts: StreamFacts | None) -> None:
            if facts is not None:
                leaderless.heard(found.group)
                then(200, _show(found, dict(facts.move)))
                return
            trouble = leaderless.silent(
                found, self._peers.brokers_in_contact(), self._env.clock.monotonic_ms()
            )
            then(200, _show(found, {"trouble": trouble} if trouble else None))

        self._neighbours.ask_stream(found, told)


def _running(found: Assignment, contact: Collection[str]) -> dict[str, Any]:
    move = found.move
    assert move is not None
    return {
        "account": found.account,
        "name": found.name,
        "id": move.id,
        "nodes": taking_part(found),
        "origin": sorted(map(node_of, move.origin)),
        "targets": sorted(map(node_of, move.targets)),
        "outOfContact": [node for node in taking_part(found) if node not in contact],
        "startedNs": move.started_ns,
        "bytesPerS": move.bytes_per_s,
        "cancelled": move.cancelled,
    }


def _show(found: Assignment, progress: dict[str, Any] | None) -> dict[str, Any]:
    move = found.move.to_json() if found.move is not None else None
    if move is not None:
        move["progress"] = progress
    return {
        "account": found.account,
        "name": found.name,
        "placement": found.config.placement.to_json(),
        "members": list(found.members),
        "move": move,
        "lastMove": found.last_move.to_json() if found.last_move is not None else None,
    }


# ---- at the meta group's leader --------------------------------------------------------------------------------------


def is_internal(subject: bytes) -> bool:
    return subject.startswith(PREFIX)


def answer(meta: MapLeader, call: MetaCall) -> None:
    """Another broker's call, at the meta group's leader."""

    def respond(outcome: Decided | MovePlan | ApiError | Fallen) -> None:
        if isinstance(outcome, Fallen):
            call.undecided()
            return
        status, body = _outcome(outcome)
        call.respond(status, body)

    verb = _VERBS.get(call.request.subject)
    try:
        if verb is None:
            raise errors.not_supported(f"call {call.request.subject.decode('utf-8', 'replace')!r} is")
        fields = read_json(call.request.payload)
        placement = Placement.from_json(fields["placement"]) if "placement" in fields else None
        wanted = StreamRequest(
            verb,
            call.request.info,
            str(fields["name"]),
            None,
            respond,
            asked_at=call.node,
            account=str(fields["account"]),
            placement=placement,
            replicas=int(fields.get("replicas", 0)),
            nodes=tuple(map(str, fields.get("nodes", ()))),
            replace=tuple(map(str, fields.get("replace", ()))),
            away_ms=int(fields.get("away_ms", 0)),
            add=tuple(map(str, fields.get("add", ()))),
            remove=tuple(map(str, fields.get("remove", ()))),
            min_usable=int(fields.get("min_usable", 0)),
            bytes_per_s=int(fields.get("bytes_per_s", 0)),
            move_id=str(fields.get("id", "")),
        )
    except ApiError as refused:
        respond(refused)
        return
    except NO_CALL:
        call.refuse()
        return
    meta.request(wanted)


def _outcome(outcome: Decided | MovePlan | ApiError) -> tuple[int, dict[str, Any]]:
    if isinstance(outcome, ApiError):
        return refusal(outcome)
    if isinstance(outcome, MovePlan):
        return 200, outcome.to_json()
    return (202 if outcome.assignment.move is not None else 200), _show(outcome.assignment, None)
