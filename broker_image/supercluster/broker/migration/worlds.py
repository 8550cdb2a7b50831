"""Names of brokers over two super-clusters: two may have a broker `nats-0` each.

A broker calls one of another super-cluster by its far name, `nats-0%3fa9c21b`, whose last part is the other one's world. Names
without a world are those of its own super-cluster. A member's name begins with its broker's, so it has a far form, too.
"""

from __future__ import annotations

from hashlib import blake2b

_MARK = "%"
_WORLD_BYTES = 4


def world_id(identity: str) -> str:
    """The world of a super-cluster of that identity."""
    return blake2b(identity.encode(), digest_size=_WORLD_BYTES).hexdigest()


def far_name(node: str, world: str) -> str:
    return f"{node}{_MARK}{world}"


def world_of(node: str) -> str:
    """Empty: the own one."""
    return node.partition(_MARK)[2]


def near_name(node: str) -> str:
    return node.partition(_MARK)[0]


def far_member(member: str, world: str) -> str:
    """A member's name with its broker's far name."""
    node, at, rest = member.partition("@")
    return f"{far_name(node, world)}{at}{rest}"


def near_member(member: str) -> str:
    """A member's name with its broker's near name."""
    node, at, rest = member.partition("@")
    return f"{near_name(node)}{at}{rest}"
