"""Checks whether a stream that lost its majority may be recovered from one copy, and which data that may lose
(RP-8, SF-9).

Pure: it judges by the map and by the reports of the brokers in contact about their copies. The map records
the outcome as a `Recovery`, in the words that the administrator saw.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.replica.lineage import lineage_of, next_lineage
from supercluster.broker.raft.confchange import node_of

# Recoveries of a stream that are remembered by their names: a call that comes late starts nothing.
EARLIER_MAX = 16
# A chosen broker that is there and has not begun in that time does not stand in another one's way any more: its disk may refuse.
ADOPTED_NS_MAX = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Recovery:
    """A forced recovery, in the map: of the stream's present lineage."""

    id: str
    member: str
    """The copy that the stream goes on from, under its new identity."""
    source: str
    """The group whose copy it is."""
    accepted_seq: int
    last_seq: int
    """Where the copy ended when it was chosen."""
    commit_seq: int
    """Up to there the copy is known to be committed: nothing of that is lost."""
    common_index: int
    """Up to this entry copies of all lineages so far are the same: what one has behind it goes into its file."""
    may_lose: str
    """What was announced, as a sentence."""
    at_ns: int = 0
    earlier: tuple[str, ...] = ()
    """Ids of the recoveries before this one, the youngest first."""

    @property
    def node(self) -> str:
        return node_of(self.member)

    @property
    def known(self) -> tuple[str, ...]:
        return (self.id, *self.earlier)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Recovery:
        fields = {**data, "earlier": tuple(map(str, data.get("earlier", ())))}
        return Recovery(**fields)

    def after(self, before: Recovery | None, at_ns: int) -> Recovery:
        """As it is recorded: with its time, and with what is remembered of the recovery before."""
        if before is None:
            return replace(self, at_ns=at_ns)
        common = min(self.common_index, before.common_index)
        return replace(self, at_ns=at_ns, common_index=common, earlier=before.known[:EARLIER_MAX])


@dataclass(frozen=True, slots=True)
class CopyFacts:
    """What a broker says of one copy of a stream that its volume holds."""

    node: str
    group: str
    member: str
    is_lost: bool = False
    """A record of it is damaged or its files are gone (SF-4)."""
    is_doubtful: bool = False
    """It may have lost what it had confirmed in the last moments before a power failure."""
    is_open: bool = False
    """It takes part in its group; else it is closed, of an older lineage, or was taken out by its disk."""
    leader: str = ""
    """The member that it hears as its group's leader, itself included."""
    last_term: int = 0
    last_index: int = 0
    commit_index: int = 0
    last_seq: int = 0
    commit_seq: int = 0
    membership_index: int = 0
    voters: tuple[str, ...] = ()
    voters_outgoing: tuple[str, ...] = ()

    @property
    def lineage(self) -> int:
        return lineage_of(self.group)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> CopyFacts:
        """
        Raises:
            KeyError, TypeError, ValueError, AttributeError: it is none.
        """
        voters = {name: tuple(map(str, data[name])) for name in ("voters", "voters_outgoing")}
        return CopyFacts(**{**data, **voters})


CopiesTold = Callable[[list[CopyFacts], frozenset[str]], None]
"""Takes a survey: the copies, and the brokers in contact that did not answer."""


@dataclass(frozen=True, slots=True)
class Situation:
    """A stream that somebody wants to recover."""

    stream: str
    group: str
    storage: str
    members: tuple[str, ...]
    """As the map has them; what the copies' own logs say goes before that (SF-5)."""
    recovery: Recovery | None
    contact: Collection[str]
    """Brokers in contact."""
    copies: Sequence[CopyFacts]
    now_ns: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """It may: from which copy, into which group, and what may be lost."""

    copy: CopyFacts
    group: str
    may_lose: str


def judge(found: Situation, node: str, accepted_seq: int, token: str = "") -> Verdict:
    """`token` becomes a part of the new lineage's name: in a recovered map a number may have been used before.

    Raises:
        ApiError: why not.
    """
    if found.storage != "file":
        raise errors.recovery_refused(
            found.stream, "it is in memory: it begins anew by itself when all of its copies are gone"
        )
    alive = why_alive(found)
    if alive:
        raise errors.recovery_refused(found.stream, alive)
    copy = _chosen(found, node, accepted_seq)
    newest = max((found.group, *(one.group for one in found.copies)), key=lineage_of)
    return Verdict(copy, next_lineage(newest, token), _may_lose(found, copy))


def _majority(voters: Collection[str], present: Collection[str]) -> bool:
    return sum(1 for voter in voters if voter in present) > len(voters) // 2


def why_alive(found: Situation) -> str:
    """Why nothing has to be forced, as a sentence; empty when the majority is not there."""
    current = [copy for copy in found.copies if copy.group == found.group]
    deposed = {copy.member for copy in current if copy.leader != copy.member}
    for copy in current:
        # Whom another one hears may have been deposed since: its own word counts, where it can be asked.
        if copy.leader and copy.leader not in deposed:
            return f"it has a leader, {copy.leader}, as {copy.member} hears: nothing has to be forced"
    pending = found.recovery
    is_young = pending is not None and found.now_ns - pending.at_ns < ADOPTED_NS_MAX
    if not current and pending is not None and pending.node in found.contact and is_young:
        source = [copy for copy in found.copies if copy.node == pending.node and copy.group == pending.source]
        if any(not copy.is_lost for copy in source):
            return f"its recovery {pending.id} on {pending.node} is under way"
    newest = max(current, key=lambda copy: copy.membership_index, default=None)
    voters = newest.voters if newest is not None and newest.voters else found.members
    outgoing = newest.voters_outgoing if newest is not None else ()
    there = {copy.member for copy in current if copy.is_open and not copy.is_lost}
    sound = {copy.member for copy in current if copy.member in there and not copy.is_doubtful}
    # Doubtful members elect only when every voter is present (SF-4).
    present = there if there >= {*voters, *outgoing} else sound
    if _majority(voters, present) and (not outgoing or _majority(outgoing, present)):
        names = ", ".join(sorted(node_of(voter) for voter in {*voters, *outgoing} if voter in present))
        return (
            f"a majority of its voters is in contact ({names}) and elects a leader: nothing has to be forced"
        )
    return ""


def _chosen(found: Situation, node: str, accepted_seq: int) -> CopyFacts:
    """The copy of the youngest lineage on that broker that has what is asked for."""
    if node not in found.contact:
        raise errors.recovery_refused(
            found.stream,
            f"broker {node} is out of contact; in contact with a copy: {_where(found) or 'none'}",
        )
    copies = sorted(
        (copy for copy in found.copies if copy.node == node), key=lambda copy: copy.lineage, reverse=True
    )
    sound = [copy for copy in copies if not copy.is_lost and copy.last_index > 0]
    for copy in sound:
        if copy.last_seq >= accepted_seq:
            return copy
    if sound:
        last = max(copy.last_seq for copy in sound)
        why = f"the copy on {node} ends at sequence {last}, before the accepted {accepted_seq}"
    elif copies:
        why = f"the copy on {node} lost its data, so the stream cannot go on from it (SF-4)"
    else:
        why = f"broker {node} has no copy"
    raise errors.recovery_refused(found.stream, f"{why}; copies: {_where(found) or 'none'}")


def _where(found: Situation) -> str:
    return ", ".join(
        f"{copy.node} up to {copy.last_seq}" for copy in found.copies if not copy.is_lost and copy.last_index
    )


def _may_lose(found: Situation, chosen: CopyFacts) -> str:
    """What the person is told, before and after."""
    newest = max(found.copies, key=lambda copy: (copy.lineage, copy.membership_index))
    voters = {*newest.voters, *newest.voters_outgoing} or set(found.members)
    others = sorted({node_of(voter) for voter in voters} - {chosen.node})
    more = [
        f"{copy.node} has messages up to {copy.last_seq}"
        for copy in found.copies
        if copy.node != chosen.node and not copy.is_lost and copy.last_seq > chosen.last_seq
    ]
    away = [node for node in others if node not in found.contact]
    goes_on = (
        f"stream {found.stream} goes on from the copy of {chosen.node}, which ends at sequence {chosen.last_seq} and is "
        f"known to be committed up to {chosen.commit_seq}"
    )
    parts = [goes_on, f"other messages that were confirmed after {chosen.commit_seq} may be lost"]
    if more:
        parts.append(f"{', '.join(more)}, which go to a file there")
    if away:
        parts.append(
            f"out of contact, so their copies are unknown, and they may accept messages until they learn of it: {', '.join(away)}"
        )
    if chosen.is_doubtful:
        parts.append("the copy may lack entries that it had confirmed just before a power failure")
    if chosen.group != found.group:
        parts.append(
            f"the copy is of lineage {chosen.lineage}: the messages that lineage {lineage_of(found.group)} confirmed are lost"
        )
    return "; ".join(parts)
