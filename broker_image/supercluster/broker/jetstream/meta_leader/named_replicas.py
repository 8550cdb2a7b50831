"""Copies that people add or remove by name, whatever the count: a stream may have more of them than it is configured with,
and never fewer (MR-3).

The count stays what it is, so nothing fills up or cuts back to it by itself: who wants another count says so. As any change of
members it is a move, in one joint change, and the group goes there by the same table (docs/adr/replica-policies.md). Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from supercluster.broker.jetstream.config.stream import REPLICAS_MAX, StreamConfig
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.moves import home_cluster, wanted_of
from supercluster.broker.jetstream.placement.choice import Choice, NodeFacts, NodeReason, choose
from supercluster.broker.jetstream.placement.dry_run import copy_bytes
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.raft.confchange import node_of


def choose_named(
    config: StreamConfig,
    facts: StreamFacts,
    known: Mapping[str, NodeFacts],
    added: Collection[str],
    removed: Collection[str],
) -> Choice:
    """All who hold the stream, with those that are added if they fit, and without those that are removed."""
    held = {node_of(voter) for voter in facts.voters}
    stay = held - set(removed)
    joining = set(added) - held
    if joining:
        home = home_cluster(held, known)
        out = {node: "was not asked for" for node in known if node not in held | joining}
        why = ", where the stream is" if home else ""
        count = replace(config, num_replicas=len(stay) + len(joining))
        return choose(
            known.values(), wanted_of(count, home, copy_bytes(facts), out, why), kept=frozenset(stay)
        )
    chosen = tuple(NodeReason(node, "holds a copy already") for node in sorted(stay))
    return Choice(chosen, tuple(NodeReason(node, "is to be removed") for node in sorted(held - stay)))


def why_not(
    state: MetaState,
    found: Assignment,
    facts: StreamFacts,
    known: Mapping[str, NodeFacts],
    added: Collection[str],
    removed: Collection[str],
    min_usable: int,
) -> str:
    """What speaks against it, as the end of "the replica is not to be …"; empty when nothing does."""
    held = {node_of(voter) for voter in facts.voters}
    whole = held | set(added)
    if len(whole) > REPLICAS_MAX:
        return f"added: the stream has {len(held)} replicas, and {REPLICAS_MAX} are the most that can be"
    unknown = sorted(set(added) - known.keys())
    if unknown:
        return f"added: there is no broker {unknown[0]}"
    gone = held & set(removed)
    rest, count = held - gone, found.config.num_replicas
    if gone and len(rest) < count:
        return f"removed: {len(rest)} would be left, and the stream's count of replicas is {count}: to have fewer, change the count"
    there = {node for node in held if _is_usable(state, found.group, node, known)}
    if gone & there and len(rest & there) < min_usable:
        return f"removed: {len(rest & there)} usable ones would be left, and at least {min_usable} are to be kept"
    return ""


def _is_usable(state: MetaState, group: str, node: str, known: Mapping[str, NodeFacts]) -> bool:
    is_there = node in known and known[node].in_contact and node not in state.away
    return is_there and group not in state.unusable.get(node, ())
