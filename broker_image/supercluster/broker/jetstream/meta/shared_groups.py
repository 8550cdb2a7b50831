"""The groups about which brokers of two super-clusters exchange frames, by the map of streams: those of
streams that are or were handed over in either direction. Pure.
"""

from __future__ import annotations

from supercluster.broker.jetstream.meta.state import MetaState


def shared_groups(state: MetaState) -> dict[str, str]:
    """Group → the world of its brokers with plain names; empty where they are of this super-cluster."""
    found: dict[str, str] = {}
    for key in sorted({*state.migrating, *state.other_groups.values()}):
        stream = state.streams[key]
        came = stream.following or stream.arrival
        if came is not None:
            found |= {stream.group: "", came.source: came.world}
        way = stream.migration
        if way is not None:
            found |= {way.source: "", way.next_group: way.world}
    return found
