"""Names of brokers across super-clusters: `nats-0%3fa9c21b` is broker `nats-0` of the super-cluster whose
world is `3fa9c21b`.

Two super-clusters may give their brokers equal names. So each calls a broker of the other one by its *far
name*, which contains that super-cluster's world. A name without a world belongs to the own super-cluster. The
same holds for members of Raft groups, whose names begin with their broker's. A configured name never contains
the mark: the settings and the handshake refuse it.
"""

from __future__ import annotations

from hashlib import blake2b

MARK = "%"
"""Between a broker's name and its world."""
WORLD_CHARACTERS = 8

_INCARNATION = "@"


def world_id(identity: str) -> str:
    """The world of the super-cluster with this identity: 8 hexadecimal digits."""
    return blake2b(identity.encode(), digest_size=WORLD_CHARACTERS // 2).hexdigest()


def far_name(node: str, world: str) -> str:
    """What brokers of another super-cluster call the broker `node`, which has no world in its name yet."""
    return f"{node}{MARK}{world}"


def world_of(name: str) -> str:
    """The world in the name of a broker or of a member; empty: the own super-cluster's."""
    return name.partition(_INCARNATION)[0].partition(MARK)[2]


def near_name(node: str) -> str:
    """What the broker calls itself."""
    return node.partition(MARK)[0]


def far_member(member: str, world: str) -> str:
    """A member whose name has no world yet, as another super-cluster's group has it."""
    node, mark, volume = member.partition(_INCARNATION)
    return far_name(node, world) + mark + volume


def near_member(member: str) -> str:
    """The member as its own super-cluster's groups have it."""
    node, mark, volume = member.partition(_INCARNATION)
    return near_name(node) + mark + volume
