"""Chooses the nodes for a stream's copies: a pure function, with a reason for every node that it considered.

Nodes that already hold a copy stay if they fit. The others are ordered by the number of replicas that they
hold, then by name. As many are chosen as the stream has replicas, never more (MV-6). A refusal gives the
reason for each node (MV-2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# A copy grows while it is made, and a log takes more room than the messages in it.
ROOM_MARGIN_SHARE = 8
"""One part in so many is added to the bytes of a copy."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is known of one broker."""

    node: str
    cluster: str
    tags: tuple[str, ...] = ()
    in_contact: bool = True
    room_bytes: int | None = None
    """What messages may still take there, of the stream's kind of storage; None while it has not said."""
    replicas: int = 0
    """Copies of streams that it is to hold."""
    leaves: bool = False
    """It goes for good."""
    reserved_bytes: int = 0
    """What copies under way will still take there: no part of its room."""
    cordoned: str = ""
    """Why it gets no new copies, as "is cordoned (…)"; empty: it does."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a stream asks for."""

    replicas: int
    cluster: str = ""
    """Empty: any."""
    tags: tuple[str, ...] = ()
    bytes_needed: int = 0
    preferred: str = ""
    """A node to take first if it fits."""
    not_on: Mapping[str, str] = field(default_factory=dict)
    """Nodes that are out of the question, and why."""
    cluster_why: str = ""
    """Where the wanted cluster comes from, when nobody named it."""


@dataclass(frozen=True, slots=True)
class NodeReason:
    """A node, and why it was taken or not."""

    node: str
    why: str

    def to_json(self) -> dict[str, str]:
        return {"node": self.node, "why": self.why}


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes for a stream, or why there are too few."""

    chosen: tuple[NodeReason, ...]
    rejected: tuple[NodeReason, ...]
    refusal: str = ""

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(found.node for found in self.chosen)


def room_needed(bytes_held: int) -> int:
    """What a copy of that many bytes takes, with a margin; at least a byte, since a full disk takes no stream."""
    return max(1, bytes_held + bytes_held // ROOM_MARGIN_SHARE)


def fits(facts: NodeFacts, wanted: Wanted) -> str:
    """Why the node is no place for the stream by what the stream asks for; empty when it is one."""
    if wanted.cluster and facts.cluster != wanted.cluster:
        return f"is in cluster {facts.cluster}, not {wanted.cluster}{wanted.cluster_why}"
    missing = [tag for tag in wanted.tags if tag not in facts.tags]
    if missing:
        has = ", ".join(facts.tags) or "none"
        return f"lacks {'tag' if len(missing) == 1 else 'tags'} {', '.join(missing)} (has {has})"
    return ""


def is_satisfied(members: Iterable[str], known: Mapping[str, NodeFacts], wanted: Wanted) -> bool:
    """Are all members where the stream asks to be? Whether they are well is another question: that is repair's."""
    return all(node in known and not fits(known[node], wanted) for node in members)


def choose(
    known: Iterable[NodeFacts],
    wanted: Wanted,
    members: frozenset[str] = frozenset(),
    kept: frozenset[str] = frozenset(),
) -> Choice:
    """Pick the nodes. `members` hold a copy already; those that are `kept` stay in any case."""
    usable: list[NodeFacts] = []
    rejected: list[NodeReason] = []
    for facts in sorted(known, key=lambda facts: facts.node):
        why = "" if facts.node in kept else _no_use(facts, wanted, is_member=facts.node in members)
        if why:
            rejected.append(NodeReason(facts.node, why))
        else:
            usable.append(facts)
    members |= kept
    usable.sort(key=lambda f: (f.node not in members, f.node != wanted.preferred, f.replicas, f.node))
    if len(usable) < wanted.replicas:
        return Choice((), tuple(rejected), _refusal(wanted, usable, rejected))
    taken, spare = usable[: wanted.replicas], usable[wanted.replicas :]
    chosen = tuple(NodeReason(f.node, _why_taken(f, wanted, f.node in members)) for f in taken)
    rejected += [NodeReason(f.node, f"fits, but others come first: {load_text(f)}") for f in spare]
    return Choice(chosen, tuple(sorted(rejected, key=lambda found: found.node)))


def _no_use(facts: NodeFacts, wanted: Wanted, *, is_member: bool) -> str:
    if facts.node in wanted.not_on:
        return wanted.not_on[facts.node]
    why = fits(facts, wanted)
    if why:
        return why
    if facts.leaves:
        return "leaves the super-cluster"
    if not facts.in_contact:
        return "is not in contact"
    if is_member:
        return ""
    if facts.cordoned:
        return facts.cordoned
    if facts.room_bytes is None:
        return "has not said yet how much room it has" if wanted.bytes_needed > 1 else ""
    if facts.room_bytes < wanted.bytes_needed:
        kept = f" beside {facts.reserved_bytes} for copies under way" if facts.reserved_bytes else ""
        why = (
            ""
            if facts.room_bytes
            else " (its disk is full, or few file descriptors are left: see its /healthz)"
        )
        return f"has not enough room: {facts.room_bytes} bytes{why}{kept}, {wanted.bytes_needed} are needed"
    return ""


def load_text(facts: NodeFacts) -> str:
    return f"holds {facts.replicas} {'copy' if facts.replicas == 1 else 'copies'} of streams"


def _why_taken(facts: NodeFacts, wanted: Wanted, is_member: bool) -> str:
    if is_member:
        return "holds a copy already"
    if facts.node == wanted.preferred:
        return f"is the preferred leader, {load_text(facts)}"
    return f"in cluster {facts.cluster}, {load_text(facts)}"


def _refusal(wanted: Wanted, usable: list[NodeFacts], rejected: list[NodeReason]) -> str:
    where = f" in cluster {wanted.cluster}" if wanted.cluster else ""
    with_tags = f" with {', '.join(wanted.tags)}" if wanted.tags else ""
    fit = ", ".join(sorted(facts.node for facts in usable)) or "none"
    reasons = "".join(f"; {found.node} {found.why}" for found in rejected)
    plural = "replica" if wanted.replicas == 1 else "replicas"
    head = f"{wanted.replicas} {plural} wanted{where}{with_tags}, {len(usable)} of "
    return f"{head}{len(usable) + len(rejected)} nodes can be used: {fit}{reasons}"
