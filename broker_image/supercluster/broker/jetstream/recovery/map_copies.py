"""Reads copies of the map: the state at a copy's end, with which a new lineage continues, and the whole copy,
to keep it in a file if a newer lineage may lack parts of it (SF-9).
"""

from __future__ import annotations

import json

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.recovery.log_records import records_of
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.errors import DiskError


def end_of(env: Environment, copies: Copies, map_view: MapView, group_id: str) -> tuple[MetaState, int]:
    """The map at the end of a copy, and the term of its last entry.

    Raises:
        DiskError: it cannot be read.
    """
    meta = map_view.replica
    if meta is not None and meta.id == group_id and group_id in copies.groups and meta.failed is None:
        state = MetaState.restore(meta.replica.snapshot())
        _replay(state, meta.log, meta.applied_index)
        return state, meta.log.last_term
    if meta is not None and meta.id == group_id:
        meta.log.close(clean=False)
    opened = env.store.open(group_id, memory=False, fsync="always", create=False)
    try:
        if opened.lost:
            raise DiskError("the copy that was chosen is damaged", group_id)
        log = opened.log
        found = log.load_checkpoint()
        base = log.base_state() if found is None else found[1]
        state = MetaState.restore(bytes(_map_in(base))) if base is not None else MetaState()
        _replay(state, log, found[0] if found is not None else log.base_index)
        return state, log.last_term
    finally:
        opened.log.close(clean=opened.log.failed is None)


def keep_tail(env: Environment, log: StreamLog, group_id: str, successor: str) -> None:
    """Write all that the copy has into a file: where the new lineage parted from it, only that one knows."""
    last = log.last_index
    if not last or env.store.has_tail(group_id, last, log.last_term):
        return
    base = log.base_state()
    head = {
        "group": group_id,
        "member": env.store.registered().get(group_id, ""),
        "followed_by": successor,
        "first_index": log.base_index + 1,
        "last_index": last,
        "base": json.loads(bytes(_map_in(base))) if base is not None else None,
    }
    path = env.store.keep_tail(
        group_id,
        last,
        log.last_term,
        json.dumps(head).encode() + b"\n",
        records_of(log, log.base_index + 1, last),
    )
    env.event(
        group_id,
        "TailKept",
        f"all that the copy of the map on {env.node} has, which lineage {successor} may lack, is in {path} of the data "
        "directory",
    )


def _map_in(snapshot: bytes) -> memoryview:
    """The map in a snapshot of the group, behind the membership."""
    reader = Reader(snapshot)
    reader.blob()
    return reader.rest()


def _replay(state: MetaState, log: StreamLog, applied_index: int) -> None:
    """Apply what is behind an entry, to the log's end, committed or not: to throw away what is there would lose more for
    nothing."""
    index = applied_index + 1
    while index <= log.last_index:
        entries = log.entries(index, log.last_index, 1 << 20)
        if not entries:
            raise DiskError(f"entry {index} cannot be read", "the end of a copy")
        for entry in entries:
            state.apply(entry)
        index = entries[-1].index + 1
