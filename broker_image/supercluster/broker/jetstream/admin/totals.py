"""The size of a broker's copies of streams, account by account, for monitoring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.config import api_level
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.placement.room import Room
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.stream.call import cluster_info, state_info
from supercluster.broker.jetstream.stream.copy import StreamCopy
from supercluster.broker.jetstream.stream.peer_status import replicas_of


@dataclass(slots=True)
class Held:
    """Streams of one account that have a replica on this broker, and what was asked of it for that account."""

    memory_bytes: int = 0
    storage_bytes: int = 0
    reserved_memory_bytes: int = 0
    reserved_storage_bytes: int = 0
    streams: int = 0
    streams_led: int = 0
    consumers: int = 0
    messages: int = 0
    replicated: int = 0
    api_total: int = 0
    api_errors: int = 0


@dataclass(slots=True)
class Totals:
    """Of the whole broker."""

    by_account: dict[str, Held] = field(default_factory=dict)
    meta_leader: str = ""
    meta_voters: int = 0
    meta_pending: int = 0
    """Entries of the map's log that are not applied here."""
    meta_replicas: list[dict[str, Any]] = field(default_factory=list)
    """The meta group's other members, as STREAM.INFO has a stream's."""
    max_memory_bytes: int = 0
    max_storage_bytes: int = 0

    def sum(self, name: str) -> int:
        """Of one number, over all accounts."""
        return sum(getattr(held, name) for held in self.by_account.values())


def totals(
    peers: Peers,
    copies: Copies,
    map_view: MapView,
    leaderships: Leaderships,
    room: Room,
    calls: Mapping[str, tuple[int, int]],
) -> Totals:
    """As of now. `calls` has by account how many calls of the API were answered here, and how many by an error."""
    found = Totals(meta_leader=leaderships.leader_of(map_view.meta_id) or "")
    if map_view.replica is not None:
        found.meta_voters = len(map_view.replica.raft.membership.voters)
        found.meta_pending = max(0, map_view.replica.log.last_index - map_view.replica.applied_index)
        assert isinstance(map_view.replica, Replica)
        for replica in replicas_of(map_view.replica, peers.brokers_in_contact()):
            # A broker's name stands for NATS's id of a peer, here as where a server is removed.
            found.meta_replicas.append(replica.to_json())
    for copy in copies.streams.values():
        _add(found.by_account.setdefault(copy.stream.assignment.account, Held()), copy)
    found.max_memory_bytes = room.memory_bytes + found.sum("memory_bytes")
    found.max_storage_bytes = room.file_bytes + found.sum("storage_bytes")
    for account, (count, errors) in calls.items():
        held = found.by_account.setdefault(account, Held())
        held.api_total, held.api_errors = count, errors
    return found


def _add(held: Held, copy: StreamCopy) -> None:
    state, config = copy.stream.state, copy.stream.state.config
    reserved = max(config.max_bytes, 0)
    if config.storage == "memory":
        held.memory_bytes += state.bytes
        held.reserved_memory_bytes += reserved
    else:
        held.storage_bytes += state.bytes
        held.reserved_storage_bytes += reserved
    held.streams += 1
    held.streams_led += copy.replica.serves
    held.consumers += len(state.consumers)
    held.messages += state.messages
    held.replicated += len(copy.replica.raft.membership.voters) > 1


def stream_details(
    copies: Copies,
    leaderships: Leaderships,
    account: str,
    *,
    led_only: bool,
    config: bool,
    consumers: bool,
    groups: bool,
) -> Iterator[dict[str, Any]]:
    """An account's streams with a replica here, one by one; what waits for a consumer is known to its leader alone."""
    for group_id in list(copies.streams):
        copy = copies.streams.get(group_id)
        if copy is None or copy.stream.assignment.account != account:
            continue
        if led_only and not copy.replica.serves:
            continue
        leader = leaderships.leader_of(group_id) or ""
        told: dict[str, Any] = {
            "name": copy.stream.assignment.name,
            "created": format_time(copy.stream.state.created_ns),
            "cluster": {
                **cluster_info(copy).to_json(),
                "leader": leader,
            },
            "state": state_info(copy.stream.state).to_json(),
        }
        if groups:
            told["stream_raft_group"] = group_id
        if config:
            shown = copy.stream.state.config.to_json()
            told["config"] = api_level.listed(shown, api_level.of_stream(shown))
        if consumers:
            told["consumer_detail"] = list(_consumers(copy, leader))
        yield told


def _consumers(copy: StreamCopy, leader: str) -> Iterator[dict[str, Any]]:
    cluster = replace(cluster_info(copy), leader=leader)
    for name, state in sorted(copy.stream.state.consumers.items()):
        led = copy.consumers.get(name) if copy.replica.serves else None
        yield answers.consumer_info(
            copy.stream.state.config.name,
            led.state if led is not None else state,
            num_waiting=led.num_waiting if led is not None else 0,
            num_pending=led.num_pending(copy.stream.source) if led is not None else 0,
            is_bound=led is not None and led.is_bound,
            cluster=cluster,
            pins=led.pins() if led is not None else (),
            now_ns=copy.host.clock.now_ns(),
        )
