"""The groups that brokers of two super-clusters have in common while a stream is handed over, or serve each other's clients with.

Both call their brokers by plain names within their own super-cluster, and a group's log has the names of its own one. So a
member of such a group that is called `nats-0` is a broker of the group's world, whichever of the two that is. The map of streams says
which groups these are; nothing else is spoken of with a broker of another super-cluster.
"""

from __future__ import annotations

from collections.abc import Mapping

from supercluster.broker.migration.worlds import MARK, far_name, near_name, world_of


def any_of(world: str) -> str:
    """In the place of a request's group: any broker of that super-cluster answers, as it does its own clients. For calls about a
    name, which may have no group there, or another one by now."""
    return f"{MARK}{world}"


def is_any_of(group_id: str) -> bool:
    return group_id.startswith(MARK)


class FarGroups:
    """See the module. One per broker."""

    def __init__(self, own_world: str) -> None:
        self.own_world = own_world
        """That of this broker's super-cluster, as others have it in the far names of its brokers."""
        self.worlds: Mapping[str, str] = {}
        """Group → the world of its brokers with plain names; empty for a group of the own super-cluster. Set by
        `BrokerCore.share_groups`."""

    def is_shared(self, group_id: str) -> bool:
        """May brokers of another super-cluster be told of the group, and say something about it?"""
        return group_id in self.worlds

    def broker_of(self, group_id: str, node: str) -> str:
        """What this broker calls the one that the group's log calls `node`."""
        world = self.worlds.get(group_id)
        if world is None:
            return node
        said = world_of(node)
        if said:
            return near_name(node) if said == self.own_world else node
        return far_name(node, world) if world else node
