"""The groups that brokers of two super-clusters share: those of streams that are handed over, and those that
serve each other's clients.

Each side calls its brokers by plain names, and a group's log has the names of its own side. So a member
`nats-0` of such a group is a broker of the group's world, whichever side that is. The map of streams lists
these groups; brokers of two super-clusters exchange frames about no others.
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
