"""Checks whether the map of streams may be recovered from one broker's copy, and which data that may lose
(RP-8, SF-9).

Pure: it judges by the reports of the brokers in contact about their copies of the meta group. The map records
the outcome in the words that the administrator saw.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.meta.stream_recovery import CopyFacts, Situation, why_alive
from supercluster.broker.jetstream.replica.lineage import META_LINEAGES_MAX, follows, lineage_of
from supercluster.broker.raft.confchange import node_of

# Every lineage of the map counts its entries from a multiple of this on: none of an older one reaches it.
LINEAGE_ENTRIES = 1 << 32
# Recoveries that are remembered by their names: a call that comes late starts nothing.
EARLIER_MAX = META_LINEAGES_MAX


class Standing(IntEnum):
    """How far what the map says of a stream is to be believed."""

    KNOWN = 0
    """As ever: the stream's whole life is in the map."""
    UNCONFIRMED = 1
    """The map was recovered, and the stream's group has not said who its members are."""
    CONFIRMED = 2
    """It has. But who had begun the stream before, and who had dropped it, nobody knows."""

    def after_word(self) -> Standing:
        """Behind an operation that has the members in force from the group itself."""
        return Standing.CONFIRMED if self is Standing.UNCONFIRMED else self


@dataclass(frozen=True, slots=True)
class MapRecovery:
    """A forced recovery of the map, in the map: of its present lineage."""

    id: str
    lineage: str
    """The meta group's name since."""
    member: str
    """The copy that the map goes on from, under its new identity."""
    source: str
    """The group whose copy it is."""
    accepted_index: int
    last_index: int
    """Where the copy ended when it was chosen."""
    commit_index: int
    """Up to there the copy is known to be committed: nothing of that is lost."""
    voters: int
    """How many brokers voted before."""
    may_lose: str
    """What was announced, as a sentence."""
    at_ns: int
    earlier: tuple[str, ...] = ()
    """Ids of the recoveries before this one, the youngest first."""

    @property
    def node(self) -> str:
        return node_of(self.member)

    @property
    def known(self) -> tuple[str, ...]:
        return (self.id, *self.earlier)[:EARLIER_MAX]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> MapRecovery:
        return MapRecovery(**{**data, "earlier": tuple(map(str, data.get("earlier", ())))})


def first_index(lineage: str, last_index: int) -> int:
    """The index under which a lineage begins that goes on from a copy which ends there, perhaps one of an older lineage than
    the one before it."""
    return max(lineage_of(lineage), last_index // LINEAGE_ENTRIES + 1) * LINEAGE_ENTRIES


@dataclass(frozen=True, slots=True)
class MapSituation:
    """What a broker that was asked to recover the map found out."""

    node: str
    """That broker."""
    group: str
    """Its lineage."""
    contact: Collection[str]
    copies: Sequence[CopyFacts]
    silent: Collection[str] = ()
    """In contact, and did not say what copies they have."""
    about_to: Mapping[str, str] | None = None
    """Node → recovery that somebody else in contact has been asked for at this moment."""


def map_alive(found: MapSituation) -> str:
    """Why nothing has to be forced; empty when no majority is there."""
    return why_alive(Situation("", found.group, "file", (), None, found.contact, found.copies))


def judge_map(found: MapSituation, accepted_index: int, *, accepts_doubt: bool) -> tuple[CopyFacts, str]:
    """The copy to go on from, and what may be lost.

    Raises:
        ApiError: why not.
    """
    if lineage_of(found.group) >= META_LINEAGES_MAX:
        raise errors.map_recovery_refused(
            f"it was recovered {META_LINEAGES_MAX} times, and no further one has a name"
        )
    if found.silent:
        who = ", ".join(sorted(found.silent))
        raise errors.map_recovery_not_now(f"{who}, in contact, did not say which copies are there")
    for node, act in sorted((found.about_to or {}).items()):
        raise errors.map_recovery_refused(
            f"broker {node} has been asked to recover it at this moment ({act or 'a dry run'}): ask again, and ask only one"
        )
    alive = map_alive(found)
    if alive:
        raise errors.map_recovery_refused(alive)
    copy = _chosen(found, accepted_index)
    if copy.is_doubtful and not accepts_doubt:
        raise errors.map_recovery_refused(
            f"the copy on {copy.node} may lack entries that it had confirmed just before a power failure; choose another "
            f"one, or set acceptDoubtful; copies: {_where(found)}"
        )
    return copy, _may_lose(found, copy)


def _chosen(found: MapSituation, accepted_index: int) -> CopyFacts:
    mine = [copy for copy in found.copies if copy.node == found.node]
    mine = [copy for copy in mine if copy.group == found.group or follows(found.group, copy.group)]
    mine.sort(key=lambda copy: copy.lineage, reverse=True)
    # One that begins empty, as a learner, has nothing before it has heard its leader.
    sound = [copy for copy in mine if not copy.is_lost and copy.last_index > 0]
    for copy in sound:
        if copy.last_index >= accepted_index:
            return copy
    if sound:
        last = max(copy.last_index for copy in sound)
        why = f"the copy on {found.node} ends at entry {last}, before the accepted {accepted_index}"
    elif mine:
        why = f"the copy on {found.node} lost its data or has none so far, so the map cannot go on from it (SF-4)"
    else:
        why = f"broker {found.node} has no copy"
    raise errors.map_recovery_refused(f"{why}; copies: {_where(found) or 'none'}")


def _where(found: MapSituation) -> str:
    return ", ".join(
        f"{copy.node} up to {copy.last_index}"
        for copy in found.copies
        if not copy.is_lost and copy.last_index
    )


def voters_of(found: MapSituation) -> set[str]:
    """Who votes, by the newest membership that somebody in contact knows."""
    known = [copy for copy in found.copies if copy.voters]  # One that begins empty knows of nobody.
    newest = max(known, key=lambda copy: (copy.lineage, copy.membership_index), default=None)
    return {*newest.voters, *newest.voters_outgoing} if newest is not None else set()


def voters_before(found: MapSituation) -> int:
    """How many voted at most, in this lineage or an older one: so many are to vote again."""
    return max((len(copy.voters) for copy in found.copies), default=0)


def away(found: MapSituation) -> list[str]:
    """Voters' brokers that are out of contact."""
    return sorted({node_of(voter) for voter in voters_of(found)} - set(found.contact))


def _may_lose(found: MapSituation, chosen: CopyFacts) -> str:
    more = [
        f"{copy.node} has entries up to {copy.last_index}"
        for copy in found.copies
        if copy.node != chosen.node
        and not copy.is_lost
        and (copy.last_term, copy.last_index) > (chosen.last_term, chosen.last_index)
    ]
    goes_on = (
        f"the map of streams goes on from the copy of {chosen.node}, which ends at entry {chosen.last_index} and is known to "
        f"be committed up to {chosen.commit_index}"
    )
    behind = (
        f"decisions after entry {chosen.commit_index} may be lost: streams created since are kept on their brokers but not "
        "served, deleted ones may reappear, moves and changes of configuration are read from the streams themselves"
    )
    parts = [goes_on, behind]
    if more:
        parts.append(f"{', '.join(more)}, which go to a file there")
    gone = away(found)
    if gone:
        parts.append(
            f"out of contact, so their copies are unknown, and they may go on deciding until they learn of it: {', '.join(gone)}"
        )
    if chosen.is_doubtful:
        parts.append("the copy may lack entries that it had confirmed just before a power failure")
    if chosen.group != found.group:
        parts.append(
            f"the copy is of lineage {chosen.group}: the decisions of lineage {found.group} since then are lost"
        )
    return "; ".join(parts)
