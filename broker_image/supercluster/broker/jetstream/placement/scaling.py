"""Chooses the nodes of a stream whose replica count changes: pure, with a reason for every node that it
considered.

To scale up, all holders of a copy keep it, whether they are well or not. The new nodes are chosen as for any
stream, inside its placement or in the cluster where it is; no existing copy is replaced on this occasion. To
scale down, the most useful copies stay, the leader's first if it is well placed, so that no leadership
changes. The group gets there as in a move, through both majorities (docs/adr/moves.md).
"""

from __future__ import annotations

from collections.abc import Mapping

from supercluster.broker.jetstream.placement.choice import (
    Choice,
    NodeFacts,
    NodeReason,
    Wanted,
    choose,
    fits,
    load_text,
)
from supercluster.broker.jetstream.placement.stream_facts import MemberFacts, StreamFacts


def choose_scaled(
    wanted: Wanted, facts: StreamFacts, known: Mapping[str, NodeFacts], lost: Mapping[str, str]
) -> Choice:
    """`wanted` has the new count. `lost`: nodes whose copy is unusable or is about to be made again, and why."""
    voters = {found.node: found for found in facts.members if found.is_voter}
    if wanted.replicas > len(voters):
        return choose(known.values(), wanted, kept=frozenset(voters))
    return _fewer(wanted, facts.leader, voters, known, lost)


def _fewer(
    wanted: Wanted,
    leader: str,
    voters: Mapping[str, MemberFacts],
    known: Mapping[str, NodeFacts],
    lost: Mapping[str, str],
) -> Choice:
    flaws = {node: _flaw(found, wanted, known.get(node), lost) for node, found in voters.items()}

    def rank(node: str) -> tuple[int, bool, bool, int, str]:
        held = known[node].replicas if node in known else 0
        return (flaws[node][0], node != leader, node != wanted.preferred, held, node)

    order = sorted(voters, key=rank)
    taken, rest = order[: wanted.replicas], order[wanted.replicas :]
    chosen = (NodeReason(node, flaws[node][1] or _merit(node, leader, wanted.preferred)) for node in taken)
    rejected = (
        NodeReason(node, flaws[node][1] or f"holds a copy, but others come first: {load_text(known[node])}")
        for node in sorted(rest)
    )
    return Choice(tuple(chosen), tuple(rejected))


def _merit(node: str, leader: str, preferred: str) -> str:
    if node == leader:
        return "leads the stream"
    return "holds a copy and is the preferred leader" if node == preferred else "holds a copy already"


def _flaw(
    found: MemberFacts, wanted: Wanted, node: NodeFacts | None, lost: Mapping[str, str]
) -> tuple[int, str]:
    """What speaks against keeping this copy, the worst with the highest number; 0: nothing."""
    if node is None:
        return 6, "is no broker of the super-cluster any more"
    if found.node in lost:
        return 5, lost[found.node]
    if not node.in_contact:
        return 4, "is not in contact"
    if not found.is_current:
        return 3, f"is behind by {found.lag} entries"
    if node.leaves:
        return 2, "leaves the super-cluster"
    why = fits(node, wanted)
    return (1, why) if why else (0, "")
