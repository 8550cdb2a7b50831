"""Moves as the meta group's leader sees them: the target nodes of a stream, the cost of a move, and targets
that are gone for too long.

It judges by the state at the end of its log. Only the stream's leader knows the progress of a move, and is
asked before any decision that depends on it.

Copies that are added or removed by name do not change the configured count of replicas: a stream may have
more copies than that, and never fewer (MR-3). The count stays the same, so no automatic step fills up or cuts
back to it; a different count has to be requested. As any change of members this is a move, in one joint
change, by the same table (docs/adr/replica-policies.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.metadata_keys import PREFERRED_LEADER_KEY
from supercluster.broker.jetstream.config.stream import REPLICAS_MAX, Placement, StreamConfig
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta_leader.copy_reports import HALTED
from supercluster.broker.jetstream.placement.choice import (
    Choice,
    NodeFacts,
    NodeReason,
    Wanted,
    choose,
    is_satisfied,
    room_needed,
)
from supercluster.broker.jetstream.placement.dry_run import copy_bytes
from supercluster.broker.jetstream.placement.scaling import choose_scaled
from supercluster.broker.jetstream.placement.stream_facts import StreamFacts
from supercluster.broker.raft.confchange import node_of


def wanted_of(
    config: StreamConfig,
    cluster: str,
    bytes_held: int,
    not_on: Mapping[str, str] | None = None,
    cluster_why: str = "",
) -> Wanted:
    """What a configuration asks of the nodes."""
    return Wanted(
        config.num_replicas,
        config.placement.cluster or cluster,
        config.placement.tags,
        room_needed(bytes_held),
        dict(config.metadata).get(PREFERRED_LEADER_KEY) or config.placement.preferred,
        not_on or {},
        "" if config.placement.cluster else cluster_why,
    )


def asks_elsewhere(before: Placement, after: Placement) -> bool:
    """Is it a placement that could move the stream? Another preferred leader is none."""
    return (before.cluster, frozenset(before.tags)) != (after.cluster, frozenset(after.tags))


def home_cluster(nodes: Iterable[str], known: Mapping[str, NodeFacts]) -> str:
    """The cluster that all these nodes are in; empty when there is no one such."""
    clusters = {known[node].cluster if node in known else "" for node in nodes}
    return clusters.pop() if len(clusters) == 1 else ""


def stays(found: Assignment, config: StreamConfig, known: Mapping[str, NodeFacts]) -> bool:
    """Do the present members satisfy the wanted placement?"""
    return is_satisfied(map(node_of, found.members), known, wanted_of(config, "", 0))


def choose_targets(
    config: StreamConfig,
    facts: StreamFacts,
    known: Mapping[str, NodeFacts],
    state: MetaState,
    removed: Collection[str] = (),
    not_planned: Mapping[str, str] | None = None,
) -> Choice:
    """The nodes for a stream that lives already, without those that are `removed`. Where nobody names a cluster, it
    stays in its own: always when a node is removed, and else if that will do."""
    out = _lost_volumes(facts, state) | dict.fromkeys(removed, "is to be removed")
    out |= not_planned or {}
    members = {node_of(voter) for voter in facts.voters} - out.keys()
    size = copy_bytes(facts)
    home, why = _home(facts, known)
    found = choose(known.values(), wanted_of(config, home, size, out, why), frozenset(members))
    if found.refusal and not config.placement.cluster and home and not removed:
        found = choose(known.values(), wanted_of(config, "", size, out), frozenset(members))
    return found


def choose_replacements(
    config: StreamConfig,
    facts: StreamFacts,
    known: Mapping[str, NodeFacts],
    replaced: Collection[str],
    not_planned: Mapping[str, str] | None = None,
) -> Choice:
    """The nodes for a stream some of whose copies are lost: others come in their places, in the cluster where it is, and
    all who hold a copy keep it, also one that is away and not yet to be replaced."""
    home, why = _home(facts, known)
    out = {**(not_planned or {}), **dict.fromkeys(replaced, "is to be replaced")}
    wanted = wanted_of(config, home, copy_bytes(facts), out, why)
    return choose(
        known.values(), wanted, kept=frozenset({node_of(voter) for voter in facts.voters} - set(replaced))
    )


def why_not_dead(
    state: MetaState, group: str, facts: StreamFacts, nodes: Iterable[str], away_ms: int, now_ns: int
) -> str:
    """What speaks against replacing the copies on these nodes; empty when nothing does. A broker that came back, if only a
    moment ago, keeps its copy, and so does one whose copy is usable again: what it lacks is less than a whole one."""
    held = {node_of(voter) for voter in facts.voters}
    for node in nodes:
        if node not in held:
            return f"broker {node} holds no copy of the stream"
        away_ns, failed_ns = state.away.get(node), state.failed_copies.get(node, {}).get(group)
        since_ns = min((since for since in (away_ns, failed_ns) if since is not None), default=None)
        if away_ms and since_ns is None:
            return f"broker {node} is in contact"
        if since_ns is not None and (gone_ms := (now_ns - since_ns) // 1_000_000) < away_ms:
            what = "out of contact" if since_ns == away_ns else "in contact without a usable copy"
            return f"broker {node} has been {what} for {gone_ms} ms, and {away_ms} are asked for"
    return ""


def choose_for_count(
    group: str,
    config: StreamConfig,
    facts: StreamFacts,
    known: Mapping[str, NodeFacts],
    state: MetaState,
    not_planned: Mapping[str, str] | None = None,
) -> Choice:
    """The nodes for a stream that is to have another count of replicas. It does not leave its cluster for them."""
    home, why = _home(facts, known)
    wanted = wanted_of(config, home, copy_bytes(facts), not_planned, cluster_why=why)
    nodes = map(node_of, facts.voters)
    failed = {node: "has an unusable copy" for node in nodes if _has_failed(state, group, node)}
    return choose_scaled(
        wanted, facts, known, {**(not_planned or {}), **failed, **_lost_volumes(facts, state)}
    )


def _home(facts: StreamFacts, known: Mapping[str, NodeFacts]) -> tuple[str, str]:
    """The cluster where the stream is, and how that is said."""
    home = home_cluster([node_of(voter) for voter in facts.voters], known)
    return home, ", where the stream is" if home else ""


def _lost_volumes(facts: StreamFacts, state: MetaState) -> dict[str, str]:
    found: dict[str, str] = {}
    for voter in facts.voters:
        node, _, incarnation = voter.partition("@")
        record = state.brokers.get(node)
        if record is not None and incarnation.partition(".")[0] != record.incarnation:
            found[node] = "lost its volume and is about to be given its copy again"
    return found


def with_changes(config: StreamConfig, placement: Placement | None, replicas: int) -> StreamConfig:
    """The configuration moved elsewhere, or with another count of replicas (0: as it is). The preferred leader stays
    unless another one is named."""
    if placement is None:
        placement = config.placement
    elif not placement.preferred:
        placement = replace(placement, preferred=config.placement.preferred)
    return replace(config, placement=placement, num_replicas=replicas or config.num_replicas)


def members_of(nodes: Iterable[str], facts: StreamFacts, state: MetaState, token: str) -> tuple[str, ...]:
    """Member ids: those of present members as they are, new ones for the others."""
    present = {node_of(voter): voter for voter in facts.voters}
    return tuple(present.get(node) or f"{node}@{state.brokers[node].incarnation}.{token}" for node in nodes)


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


def why_not_named(
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
    return is_there and not _has_failed(state, group, node)


def _has_failed(state: MetaState, group: str, node: str) -> bool:
    """Is the copy unusable, or did it halt (SF-34)? The latter's broker may be in contact, and its log seem to be current."""
    return not state.failed_copies.get(node, {}).keys().isdisjoint((group, f"{HALTED}{group}"))


def one_of(wanted: Wanted, preferred: str) -> Wanted:
    """The same for a single node."""
    return replace(wanted, replicas=1, preferred=preferred)


def in_progress(found: Assignment, facts: StreamFacts | None) -> ApiError:
    """NATS's 10124, with total peers, current peers and combined lag (MV-3)."""
    assert found.move is not None
    if facts is not None:
        return errors.error(10124, facts.progress())
    total = len({*found.move.targets, *found.move.origin})
    return errors.error(
        10124,
        f"total peers: {total}, current peers and combined lag are unknown: the stream's leader does not answer",
    )
