"""The voters of the meta group: an equal, bounded number per cluster, and the next change towards it.

Pure: the meta leader passes in its observations and carries out one change at a time. The rules:
- A usable voter stays.
- A new voter was a caught-up learner before.
- A dead voter is swapped for a living broker of its cluster, after a delay and in the same change, so that
  the group never grows around it (SF-8).
- No change removes the last voter that can be spared, so in two clusters of which one has a single node the
  other keeps more.
- In one cluster an odd number votes, which grows and shrinks with its nodes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from supercluster.broker.raft.confchange import Membership, node_of

PER_CLUSTER_MAX = 3
VOTERS_MAX = 9
# In one cluster that is alone; a group that was founded with more keeps them.
ALONE_MAX = 5


@dataclass(frozen=True, slots=True)
class VoterView:
    """What the meta leader sees."""

    membership: Membership
    leader: str
    """Its own member id."""
    clusters: Mapping[str, str]
    """Node → cluster, of every broker that the meta group knows."""
    in_contact: Collection[str]
    """Nodes, its own among them."""
    given_up: Collection[str]
    """Nodes that are out of contact for longer than the patience."""
    caught_up: Collection[str]
    """Members that have all that is committed."""
    leaving: Collection[str] = frozenset()
    """Nodes that go for good."""
    founded: int = 0
    """How many voted before the map was recovered by force; 0: it never was."""


@dataclass(frozen=True, slots=True)
class VoterPlan:
    """The membership that is to be next."""

    voters: tuple[str, ...]
    learners: tuple[str, ...]
    why: str


def per_cluster(sizes: Collection[int]) -> int:
    """How many voters each cluster has, by how many nodes the clusters have."""
    if not sizes:
        return 1
    return max(1, min(PER_CLUSTER_MAX, VOTERS_MAX // len(sizes), *sizes))


def of_one_cluster(nodes: int, voters: int) -> int:
    """How many are to vote in a cluster that is alone, of so many nodes, where so many vote or did at most."""
    return _odd(min(nodes, max(ALONE_MAX, voters)))


def plan_voters(view: VoterView) -> VoterPlan | None:
    """The next change; None when the voters are as they should be, or nothing can be done now."""
    membership = view.membership
    staying = {node: name for node, name in view.clusters.items() if node not in view.leaving}
    going = [voter for voter in membership.voters if node_of(voter) in view.leaving]
    clusters = sorted(set(staying.values()))
    if membership.is_joint or not membership.voters or not clusters:
        return None
    # A voter of a node that the meta group does not know yet is not this plan's to take away.
    unknown = [v for v in membership.voters if node_of(v) not in staying and v not in going]
    is_alone = len(clusters) == 1
    if is_alone and unknown and not going:
        return None  # It is being founded.
    view = replace(view, clusters=staying)
    sizes = [sum(1 for found in staying.values() if found == name) for name in clusters]
    kept = len(membership.voters) - len(going)
    count = per_cluster(sizes)
    if is_alone and unknown:
        count = max(count, kept)
    elif is_alone:
        wished = of_one_cluster(len(staying), max(len(membership.voters), view.founded))
        # As long as learners are on their way, those who vote are an odd number too, or as many as there were; and with a dead
        # one the group does not grow.
        there = [m for m in _of_cluster(view, clusters[0], wished) if not _is_dead(view, m)]
        count = max(_odd(len(there)), min(kept, wished))
    chosen = [_of_cluster(view, name, count) for name in clusters]
    wanted = sorted([*unknown, *(member for members in chosen for member in members)])
    dead = [voter for voter in going if node_of(voter) in view.given_up]
    keeping = sorted({*wanted, *membership.voters} - {*_swapped_out(view, wanted), *dead})
    # Where everybody who stays votes, or two stay, nobody else can make up for those who go.
    is_all = staying.keys() <= {node_of(member) for member in wanted} or len(staying) <= 2
    least = 0 if going and is_all else 1
    lacks = any(len(members) < count for members in chosen)
    if lacks and len(keeping) <= VOTERS_MAX:
        wanted = keeping  # Nobody goes before those are there who come instead.
    elif _spare(view, wanted) < min(least, _spare(view, keeping)):
        wanted = keeping
    if tuple(wanted) == membership.voters or not _is_safe(view, wanted, least):
        return None
    return _plan(view, tuple(wanted), count)


def _odd(count: int) -> int:
    """A second voter would have to be well for every decision, and bear nobody's loss."""
    return count - 1 + count % 2


def _of_cluster(view: VoterView, name: str, count: int) -> list[str]:
    """The voters that the cluster is to have: present ones first, dead ones only where nobody could take their place."""

    def of_cluster(members: Iterable[str]) -> list[str]:
        return [member for member in members if view.clusters.get(node_of(member)) == name]

    voters = of_cluster(view.membership.voters)
    taken = {node_of(voter) for voter in voters}
    ready = [
        learner
        for learner in of_cluster(view.membership.learners)
        if learner in view.caught_up and node_of(learner) in view.in_contact and node_of(learner) not in taken
    ]
    alive = [voter for voter in voters if node_of(voter) in view.in_contact]
    waited_for = [voter for voter in voters if voter not in alive and node_of(voter) not in view.given_up]
    dead = [voter for voter in voters if voter not in alive and voter not in waited_for]
    alive.sort(key=lambda voter: (voter != view.leader, voter))
    return [*alive, *waited_for, *sorted(ready), *dead][:count]


def _is_dead(view: VoterView, member: str) -> bool:
    return node_of(member) in view.given_up and node_of(member) not in view.in_contact


def _swapped_out(view: VoterView, wanted: Collection[str]) -> list[str]:
    """Dead voters in whose place a living one of their cluster comes."""
    out: list[str] = []
    coming = [member for member in wanted if member not in view.membership.voters]
    for voter in view.membership.voters:
        node = node_of(voter)
        if voter in wanted or not _is_dead(view, voter):
            continue
        found = next((c for c in coming if view.clusters[node_of(c)] == view.clusters.get(node)), None)
        if found is not None:
            coming.remove(found)
            out.append(voter)
    return out


def _spare(view: VoterView, voters: Collection[str]) -> int:
    """How many of these voters may still fail before too few are left to agree; negative: too few are well now."""
    well = sum(1 for voter in voters if node_of(voter) in view.in_contact and voter in view.caught_up)
    return well - (len(voters) // 2 + 1)


def _is_safe(view: VoterView, voters: Collection[str], least: int) -> bool:
    """Both majorities are there now, and a failure that was survivable before still is."""
    before, after = _spare(view, view.membership.voters), _spare(view, voters)
    return before >= 0 and after >= min(least, before)


def _plan(view: VoterView, voters: tuple[str, ...], count: int) -> VoterPlan:
    members = view.membership.members
    present = view.membership.voters
    nodes = {node_of(voter) for voter in voters}
    # A dead member of a node that votes under another identity now is nobody any more.
    learners = tuple(m for m in members if m not in voters and node_of(m) not in nodes)
    coming = ", ".join(voter for voter in voters if voter not in present) or "nobody"
    going = ", ".join(voter for voter in present if voter not in voters) or "nobody"
    return VoterPlan(
        voters, learners, f"{count} per cluster are wanted: {coming} votes from now on, {going} no longer"
    )


@dataclass(frozen=True, slots=True)
class LostCluster:
    """A cluster that is out of contact as a whole, and a sentence that says what went with it."""

    cluster: str
    has_majority: bool
    """Can the meta group go on without it?"""
    text: str


def lost_clusters(
    membership: Membership, clusters: Mapping[str, str], in_contact: Collection[str]
) -> list[LostCluster]:
    """Clusters of which no broker is in contact: how many voters went with each, and what that means."""
    found: list[LostCluster] = []
    voters, names = membership.voters, sorted(set(clusters.values()))
    here = sum(1 for voter in voters if node_of(voter) in in_contact)
    majority = len(voters) // 2 + 1
    for name in names:
        nodes = [node for node, cluster in clusters.items() if cluster == name]
        if len(names) < 2 or any(node in in_contact for node in nodes):
            continue
        gone = sum(1 for voter in voters if clusters.get(node_of(voter)) == name)
        head = (
            f"cluster {name} is out of contact ({len(nodes)} brokers): it holds {gone} of the meta group's "
        )
        head += f"{len(voters)} voters, {here} are in contact and {majority} must agree"
        if here >= majority:
            meaning = "the meta group goes on"
        else:
            meaning = (
                "until it is back no stream can be created, changed, deleted or moved, and streams with most of "
                "their copies there take no messages"
            )
        found.append(LostCluster(name, here >= majority, f"{head}: {meaning}"))
    return found


def lost_copies(
    stream: str, members: Collection[str], clusters: Mapping[str, str], gone: Collection[str]
) -> str:
    """What says that a stream cannot serve because of clusters that are gone; empty when that is not why."""
    held = {
        name: sum(1 for member in members if clusters.get(node_of(member)) == name) for name in sorted(gone)
    }
    if sum(held.values()) <= (len(members) - 1) // 2:
        return ""
    parts = [
        f"{count} of stream {stream}'s {len(members)} copies are in cluster {name}, which is out of contact"
        for name, count in held.items()
        if count
    ]
    return "; ".join(parts)
