"""Chooses the member of a queue group that gets a message: every member with equal probability, brokers by
the number of their members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from supercluster.broker.net.routing.subscriber import Subscription


class QueueChoice:
    """Draws from the randomness that is handed in."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._random = draw

    def member(self, members: list[Subscription]) -> Subscription:
        """One of those here."""
        return members[int(self._random() * len(members))] if len(members) > 1 else members[0]

    def broker(self, members: Mapping[str, int]) -> str:
        """A broker with members of a group, by their number."""
        nodes = list(members)
        if len(nodes) > 1:
            left = self._random() * sum(members.values())
            for node in nodes:
                left -= members[node]
                if left < 0:
                    return node
        return nodes[-1]
