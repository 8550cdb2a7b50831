"""The other super-clusters that a broker links with, by the map of streams, and the accounts whose messages
cross the links.
"""

from __future__ import annotations

from supercluster.broker.jetstream.meta.state import MetaState
from supercluster.broker.ports import FarSuperCluster


def wanted_far(state: MetaState) -> dict[str, FarSuperCluster]:
    """By identity: those that a migration leads to, until it is over and none of its streams is there. Clients that stay on this side are
    served from there for good."""
    if not state.migrations:
        return {}
    streams = (state.streams[key].migration for key in state.migrating)
    worlds = {way.world for way in streams if way is not None}
    found: dict[str, FarSuperCluster] = {}
    for migration in state.migrations.values():
        if not migration.runs and migration.world not in worlds:
            continue
        green = migration.green
        accounts = frozenset((migration.account,)) if migration.account else None
        addresses = green.addresses
        has_streams = migration.world in worlds or not migration.cancelled
        other = found.get(green.identity)
        if other is not None:
            addresses = tuple(dict.fromkeys((*other.addresses, *addresses)))
            both = None not in (accounts, other.accounts)
            accounts = (accounts or frozenset()) | (other.accounts or frozenset()) if both else None
            has_streams = has_streams or other.has_streams
        found[green.identity] = FarSuperCluster(
            green.identity, addresses, green.tls_name, accounts, has_streams
        )
    return found
