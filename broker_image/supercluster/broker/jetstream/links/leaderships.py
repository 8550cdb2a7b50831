"""The leader of each group as far as this broker knows, and the announcements of groups that it leads itself.

A leader announces itself when it begins to serve, and to every broker that is linked later. A broker that
missed the announcement asks for it. The newest term counts until that broker withdraws, is lost, or says to who
asks it that it does not lead. Brokers of other super-clusters get announcements and questions only about shared
groups (`far_groups.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame, Leadership
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.ports import Channel

# A frame names at most so many leaderships: some hundred KiB.
LEADERSHIPS_PER_FRAME = 1000


class Leaderships:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._is_shared = peers.far_groups.is_shared
        self._known: dict[str, tuple[int, str]] = {}
        """Group → term and broker."""
        self._news: list[Leadership] = []

    # ---- what was told --------------------------------------------------------------------------------------------

    def leader_of(self, group_id: str) -> str | None:
        """The broker that said it serves as the group's leader, as far as this one knows."""
        known = self._known.get(group_id)
        return known[1] if known is not None else None

    def find(self, group_id: str) -> tuple[int, str] | None:
        """The term, and the broker that said it serves as the group's leader in it."""
        return self._known.get(group_id)

    def on_leadership(self, news: Leadership) -> bool:
        """A broker says that it serves as a group's leader. False when a newer one is known."""
        known = self._known.get(news.group)
        if known is not None and known[0] > news.term:
            return False
        self._known[news.group] = (news.term, news.node)
        return True

    def forget(self, group_id: str, node: str | None = None) -> None:
        """The broker does not lead the group (any more); without a broker: the group is gone."""
        known = self._known.get(group_id)
        if known is not None and node in (None, known[1]):
            del self._known[group_id]

    def forget_node(self, node: str) -> None:
        """The broker is lost: believe in none of its leaderships."""
        for group_id in [group_id for group_id, known in self._known.items() if known[1] == node]:
            del self._known[group_id]

    def resign(self, group_id: str) -> None:
        """The replica here takes part no more, and may have led: nobody else would notice, where the group is silent."""
        self.forget(group_id, self._peers.node)
        for node in self._peers.names_for(group_id):
            self._peers.post(node, Frame.NOT_LEADER, frames.encode_texts(group_id, ""))

    def ask(self, group_id: str) -> None:
        """The group's leader is not known: have it say so again, whoever it is."""
        for node in self._peers.names_for(group_id):
            self._peers.post(node, Frame.WHO_LEADS, frames.encode_texts(group_id))

    # ---- what is told ---------------------------------------------------------------------------------------------

    def begin(self, replica: Replica) -> Leadership:
        """This broker's replica serves: the others are told with the next `flush`."""
        news = self._of(replica)
        self._news.append(news)
        return news

    def flush(self) -> None:
        """Tell all brokers what began since the last time."""
        if self._news:
            news, self._news = self._news, []
            self._notify(news, self._peers.linked)
            if self._peers.far:
                self._notify([one for one in news if self._is_shared(one.group)], self._peers.far)

    def notify(self, groups: Iterable[Replica], node: str) -> None:
        """Say to a broker that this one serves as these groups' leader."""
        self._notify([self._of(group) for group in groups], [node])

    def notify_far(self, groups: Iterable[Replica], nodes: Iterable[str]) -> None:
        """Say so to brokers of another super-cluster, as far as they share the groups."""
        self._notify([self._of(group) for group in groups if self._is_shared(group.id)], nodes)

    def ask_far(self, group_id: str, node: str) -> None:
        """The leader of a shared group may be this broker of the other super-cluster."""
        self._peers.post(node, Frame.WHO_LEADS, frames.encode_texts(group_id))

    def _of(self, replica: Replica) -> Leadership:
        return Leadership(replica.id, replica.raft.term, self._peers.node, replica.raft.membership.encode())

    def _notify(self, news: list[Leadership], nodes: Iterable[str]) -> None:
        """As few frames as possible: after a broker was lost, or linked, there may be thousands of leaderships."""
        bodies = [
            frames.encode_leaderships(news[start : start + LEADERSHIPS_PER_FRAME])
            for start in range(0, len(news), LEADERSHIPS_PER_FRAME)
        ]
        for node in nodes:
            for body in bodies:
                self._peers.network.send(node, Frame.LEADER, body, Channel.CONTROL)
