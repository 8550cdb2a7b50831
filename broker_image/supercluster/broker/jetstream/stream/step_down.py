"""A leader steps down at a client's request in favour of another voter in contact: the named one, or the one
that lacks the fewest entries.
"""

from __future__ import annotations

from collections.abc import Callable

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.stream import ANYWHERE, Placement
from supercluster.broker.jetstream.replica.contact import Member, is_heard
from supercluster.broker.raft.confchange import node_of

TagsOf = Callable[[str], tuple[str, ...]]


def step_down(own: Member, tags_of: TagsOf, wanted: Placement) -> None:
    """Begin to hand the leadership over; nothing happens where there is nobody else, or where it is on its way already.

    Raises:
        ApiError: nobody who may lead can take it now, or none of them is as `wanted` says.
    """
    raft = own.raft
    others = [voter for voter in raft.membership.voters if voter != own.member]
    if wanted != ANYWHERE:
        others = [voter for voter in others if _is_wanted(own, tags_of, node_of(voter), wanted)]
        if not others:
            raise errors.no_suitable_peers(f"{_told(wanted)} is no other voter of the group")
    now_ms = own.host.clock.monotonic_ms()
    # The follower that lacks least takes over soonest.
    others.sort(key=lambda voter: -raft.progress[voter].match if voter in raft.progress else 0)
    well = [voter for voter in others if is_heard(own, voter)]
    is_on_its_way = raft.is_handing_over and wanted == ANYWHERE
    if not others or is_on_its_way or any(raft.transfer_leadership(voter, now_ms) for voter in well):
        return
    names = ", ".join(sorted(map(node_of, others)))
    state = "cannot now: leadership is on its way, or its log is in doubt" if well else "is not in contact"
    raise errors.no_suitable_peers(f"no member can take the leadership over: {names} {state}")


def _is_wanted(own: Member, tags_of: TagsOf, node: str, wanted: Placement) -> bool:
    """Tags and cluster are known of brokers in contact."""
    if wanted.preferred and node != wanted.preferred:
        return False
    if not (wanted.cluster or wanted.tags):
        return True
    contact = own.host.brokers_in_contact().get(node)
    if contact is None or (wanted.cluster and contact[0] != wanted.cluster):
        return False
    return set(wanted.tags) <= set(tags_of(node))


def _told(wanted: Placement) -> str:
    """As in "east-1", "a broker of west with ssd"."""
    if wanted.preferred and not (wanted.cluster or wanted.tags):
        return wanted.preferred
    where = f" of {wanted.cluster}" if wanted.cluster else ""
    having = f" with {', '.join(wanted.tags)}" if wanted.tags else ""
    return f"{wanted.preferred or 'a broker'}{where}{having}"
