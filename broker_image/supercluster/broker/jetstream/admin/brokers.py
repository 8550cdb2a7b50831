"""Brokers, and those that go for good, over HTTP (`/admin/brokers/{node}`): DELETE says that one leaves, POST that it stays after all,
GET what there is of it, or without a name of all, and which clusters are out of contact as a whole. A call may be repeated:
what is so already is answered at once.

It goes from the broker that was asked to the meta group's leader as an internal request, whose subject no client can send.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from supercluster.broker.bounds import NODE_CHARS_MAX
from supercluster.broker.jetstream.admin.call import MetaCall, Then, ask_meta_leader, not_available
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.broker_requests import holders
from supercluster.broker.jetstream.meta_leader.map_leader import MapLeader
from supercluster.broker.raft.confchange import node_of

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore

PREFIX = b"$SC.BROKER."
_LEAVE, _STAY = PREFIX + b"LEAVE", PREFIX + b"STAY"
# Streams that are named with copies beyond their count; the others are, when these have none any more.
BEYOND_MAX = 1024

Rooms: TypeAlias = Mapping[str, Mapping[str, int]]
"""Kind of storage → broker → bytes."""


def call(core: BrokerCore, method: str, node: str, then: Then) -> None:
    """One call of the admin API; `then` is called once, within the time that any request has."""
    if method == "GET":
        then(*(_one(core, node) if node else _all(core)))
        return
    if not 0 < len(node) <= NODE_CHARS_MAX:
        then(400, {"error": f"a broker's name has 1 to {NODE_CHARS_MAX} characters, not {len(node)}"})
        return

    subject = _LEAVE if method == "DELETE" else _STAY
    ask_meta_leader(core, "$SYS", subject, node.encode(), then)


def _all(core: BrokerCore) -> tuple[int, dict[str, Any]]:
    """Every broker as this one's map has it, and what is lost with clusters that are gone: that has to be told by brokers
    whose map may be old, too, and they say so."""
    if core.meta is None:
        return not_available(core)
    copies = holders(core.meta.state)
    rooms = _rooms(core.meta)
    found = [_state(core, core.meta, node, copies, rooms) for node in sorted(core.meta.state.brokers)]
    return 200, {
        "brokers": found,
        "lostClusters": core.surroundings.troubles,
        "beyondTarget": _beyond_target(core.meta.state),
        "timeNs": core.clock.now_ns(),
        "knowsRoom": core.meta.serves,
        "mapIsFresh": core.map.is_fresh,
    }


def _one(core: BrokerCore, node: str) -> tuple[int, dict[str, Any]]:
    """Not by a map that may be old: by this the caller takes a broker away for good."""
    if core.meta is None or not core.map.is_fresh:
        return not_available(core)
    if node not in core.meta.state.brokers:
        return 404, {"error": f"there is no broker {node}"}
    return 200, _state(core, core.meta, node, holders(core.meta.state), _rooms(core.meta))


def _rooms(meta: MapLeader) -> Rooms:
    """Only the map's leader knows how much room there is."""
    return {storage: meta.rooms(storage) for storage in ("file", "memory")}


def _state(
    core: BrokerCore, meta: MapLeader, node: str, copies: Mapping[str, int], rooms: Rooms
) -> dict[str, Any]:
    """As this broker's map has it."""
    state, membership = meta.state, meta.raft.membership
    record = state.brokers[node]
    return {
        "node": node,
        "cluster": record.cluster,
        "tags": list(record.tags),
        "leaves": node in state.leaving,
        "inContact": node in core.brokers_in_contact(),
        "awaySinceNs": state.away.get(node),
        "unusable": _unusable(meta, node),
        "cordoned": cordon.to_json() if (cordon := state.cordoned.get(node)) is not None else None,
        "votes": any(node_of(voter) == node for voter in membership.all_voters),
        "holdsCopies": node in copies,
        "copies": copies.get(node, 0),
        "roomBytes": rooms["file"].get(node),
        "memoryRoomBytes": rooms["memory"].get(node),
    }


def _beyond_target(state: MetaState) -> list[dict[str, str]]:
    """Streams with more copies than their count, which people have added."""
    beyond = (
        {"account": found.account, "name": found.name}
        for found in state.streams.values()
        if found.move is None and len(found.members) > found.config.num_replicas
    )
    return list(islice(beyond, BEYOND_MAX))


def _unusable(meta: MapLeader, node: str) -> list[dict[str, Any]]:
    """Copies that the broker says it can do nothing with. Why is known at the map's leader alone."""
    since = meta.state.unusable.get(node)
    if not since:
        return []
    return [
        {
            "account": found.account,
            "name": found.name,
            "sinceNs": since[found.group],
            "why": meta.why_unusable(node, found.group),
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

    meta.brokers.ask(node, respond, call.undecided, leaves=call.request.subject == _LEAVE)
