"""What the beginning of every replica has in common: Raft over the log that the volume holds, and errors that stay with
their group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.replica.lineage import is_meta, lineage_of
from supercluster.broker.jetstream.replica.replica import APPLY_BYTES_MAX
from supercluster.broker.ports import OpenedGroup, StreamLog
from supercluster.broker.raft.confchange import Membership
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.raft.node import Raft

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore


def volume_member(core: BrokerCore) -> str:
    """The identity under which this volume joins groups, as long as it loses none of its copies (SF-4)."""
    return f"{core.node}@{core.store.incarnation}"


def new_member(core: BrokerCore) -> str:
    """An identity that never was, for a copy that was lost while its volume was not."""
    return f"{volume_member(core)}.{core.new_token()}"


def raft_over(
    core: BrokerCore, group_id: str, opened: OpenedGroup, member: str, fallback: Membership
) -> Raft:
    """Raft over an opened log. The membership is the checkpoint's; a group without one has the fallback."""
    found = opened.log.load_checkpoint()
    state = found[1] if found is not None else opened.log.base_state()
    membership = Membership.decode(Reader(state).blob()) if state is not None else fallback
    term, vote = opened.log.load_vote()
    index = max(found[0] if found is not None else 0, opened.log.base_index)
    for entry in opened.log.memberships(index + 1, opened.commit_index)[-1:]:
        membership = replace(Membership.decode(entry.payload), index=entry.index)
    return Raft(
        core.raft_config(group_id, member),
        opened.log,
        term=term,
        vote=vote,
        membership=membership,
        commit_index=max(index, opened.commit_index),
        rng=core.rng,
        now_ms=core.clock.monotonic_ms(),
        doubtful=opened.doubtful,
        lineage=lineage_of(group_id),
    )


def records_of(log: StreamLog, first: int, last: int) -> Iterator[bytes]:
    """The records of entries, a stretch at a time, however many there are.

    Raises:
        DiskError: one of them cannot be read.
    """
    while first <= last:
        entries = log.entries(first, last, APPLY_BYTES_MAX)
        if not entries:
            raise DiskError(f"entry {first} cannot be read", "the end of a copy")
        yield b"".join(entry.record for entry in entries)
        first = entries[-1].index + 1


def attempt(core: BrokerCore, group_id: str, act: Callable[[], None]) -> bool:
    """What goes wrong with a group costs this broker that group, and nothing else; without the meta group it can do
    nothing, so there only a disk is forgiven."""
    try:
        act()
    except DiskError as error:
        core.event(group_id, "DiskFailed", f"{core.node} cannot follow what is decided: {error}")
        return False
    except Exception as error:
        if is_meta(group_id):
            raise
        _give_up(core, group_id)
        core.event(
            group_id,
            "GroupFailed",
            f"{core.node} cannot follow what is decided, which is an error in the broker: "
            f"{type(error).__name__}: {error}",
        )
        return False
    return True


def _give_up(core: BrokerCore, group_id: str) -> None:
    """The group may be here in part. Nobody will use its log any more, which is whole: it is closed as at a clean stop,
    because the volume's own clean stop, which vouches for all logs, may follow without another word from this one."""
    group = core.drop_group(group_id)
    if group is None:
        return
    core.leaderships.resign(group_id)
    try:
        group.log.close(clean=True)
    except DiskError as error:
        core.event(group_id, "DiskFailed", f"the log of {group.member} could not be made durable: {error}")
