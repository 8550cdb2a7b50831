"""Brokers and their permanent removal over HTTP (`/admin/brokers/{node}`).

DELETE declares that a broker leaves, POST takes that back, and GET returns the state of one broker or,
without a name, of all of them, and the clusters that are out of contact as a whole. A call may be repeated: a
change that is already in force is answered at once.

The broker that receives the call forwards it to the meta group's leader as an internal request, on a subject
that no client can publish to.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any, TypeAlias

from supercluster.broker.bounds import NODE_CHARS_MAX
from supercluster.broker.jetstream.admin.call import Caller, MetaCall, Then
from supercluster.broker.jetstream.admin.cordons import DECLARED_BY_CHARACTERS_MAX
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.meta_leader.broker_requests import holders
from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.lost_clusters import LostClusters
from supercluster.broker.raft.confchange import node_of

PREFIX = b"$SC.BROKER."
_LEAVE, _STAY = PREFIX + b"LEAVE", PREFIX + b"STAY"
# Streams that are named with copies beyond their count; the others are, when these have none any more.
BEYOND_MAX = 1024

Rooms: TypeAlias = Mapping[str, Mapping[str, int]]
"""Kind of storage → broker → bytes."""


class BrokerCalls:
    """The calls at one broker."""

    def __init__(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        lost_clusters: LostClusters,
        caller: Caller,
    ) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._lost_clusters = lost_clusters
        self._caller = caller

    def call(self, method: str, node: str, then: Then, body: object = None) -> None:
        """One call of the admin API; `then` is called once, within the time that any request has."""
        if method == "GET":
            then(*(self._one(node) if node else self._all()))
            return
        if not 0 < len(node) <= NODE_CHARS_MAX:
            then(400, {"error": f"a broker's name has 1 to {NODE_CHARS_MAX} characters, not {len(node)}"})
            return
        declared_by = body.get("declaredBy", "") if isinstance(body, Mapping) else ""
        if not isinstance(declared_by, str) or len(declared_by) > DECLARED_BY_CHARACTERS_MAX:
            told = f"declaredBy has to be a text of at most {DECLARED_BY_CHARACTERS_MAX} characters"
            then(400, {"error": told})
            return
        subject = _LEAVE if method == "DELETE" else _STAY
        self._caller.ask("$SYS", subject, node.encode(), then, declared_by)

    def _all(self) -> tuple[int, dict[str, Any]]:
        """Every broker as this one's map has it, and what is lost with clusters that are gone: that has to be told by brokers
        whose map may be old, too, and they say so."""
        meta = self._copies.map
        if meta is None:
            return self._caller.not_available()
        copies, rooms = holders(meta.state), _rooms(meta)
        found = [self._state(meta, node, copies, rooms) for node in sorted(meta.state.brokers)]
        return 200, {
            "brokers": found,
            "lostClusters": self._lost_clusters.troubles,
            "beyondTarget": _beyond_target(meta.state),
            "timeNs": self._env.clock.now_ns(),
            "knowsRoom": meta.serves,
            "mapIsFresh": self._map.is_fresh,
            "mapUnreadMs": 0
            if self._map.is_fresh
            else self._env.clock.monotonic_ms() - self._map.unread_since_ms,
        }

    def _one(self, node: str) -> tuple[int, dict[str, Any]]:
        """Not by a map that may be old: by this the caller takes a broker away for good."""
        meta = self._copies.map
        if meta is None or not self._map.is_fresh:
            return self._caller.not_available()
        if node not in meta.state.brokers:
            return 404, {"error": f"there is no broker {node}"}
        return 200, self._state(meta, node, holders(meta.state), _rooms(meta))

    def _state(self, meta: MapLeader, node: str, copies: Mapping[str, int], rooms: Rooms) -> dict[str, Any]:
        """As this broker's map has it."""
        state, membership = meta.state, meta.raft.membership
        record = state.brokers[node]
        return {
            "node": node,
            "cluster": record.cluster,
            "tags": list(record.tags),
            "leaves": node in state.leaving,
            "leavesFor": state.leaving.get(node),
            "inContact": node in self._peers.brokers_in_contact(),
            "awaySinceNs": state.away.get(node),
            "unusable": _failed_copies(meta, node),
            "cordoned": cordon.to_json() if (cordon := state.cordoned.get(node)) is not None else None,
            "votes": any(node_of(voter) == node for voter in membership.all_voters),
            "holdsCopies": node in copies,
            "copies": copies.get(node, 0),
            "roomBytes": rooms["file"].get(node),
            "memoryRoomBytes": rooms["memory"].get(node),
        }


def _rooms(meta: MapLeader) -> Rooms:
    """Only the map's leader knows how much room there is."""
    leader = meta if meta.serves else None
    return {storage: leader.rooms(storage) if leader is not None else {} for storage in ("file", "memory")}


def _beyond_target(state: MetaState) -> list[dict[str, str]]:
    """Streams with more copies than their count, which people have added."""
    beyond = (
        {"account": found.account, "name": found.name}
        for found in state.streams.values()
        if found.move is None and len(found.members) > found.config.num_replicas
    )
    return list(islice(beyond, BEYOND_MAX))


def _failed_copies(meta: MapLeader, node: str) -> list[dict[str, Any]]:
    """Copies that the broker says it can do nothing with. Why is known at the map's leader alone."""
    since = meta.state.failed_copies.get(node)
    if not since:
        return []
    return [
        {
            "account": found.account,
            "name": found.name,
            "sinceNs": since[found.group],
            "why": meta.why_failed(node, found.group),
        }
        for found in meta.state.streams.values()
        if found.group in since
    ]


def is_internal(subject: bytes) -> bool:
    return subject.startswith(PREFIX)


def answer(meta: MapLeader, call: MetaCall) -> None:
    """Another broker's call, at the meta group's leader."""
    node = call.request.payload.decode("utf-8", "replace")

    def respond(refused: ApiError | None) -> None:
        status, body = 200, {"node": node, "leaves": call.request.subject == _LEAVE}
        if refused is not None:
            status = {10040: 404, 10052: 409}.get(refused.err_code, refused.code)
            body = {"error": refused.description, "err_code": refused.err_code}
        call.respond(status, body)

    leaves, declared_by = call.request.subject == _LEAVE, call.request.info.user
    meta.brokers.ask(node, respond, call.undecided, leaves=leaves, declared_by=declared_by)
