"""Volumes that were put back to an earlier state, as from a snapshot (SF-27).

A volume counts its starts, and a broker says the count in the handshake. Each broker remembers the highest
count that it has heard for a volume, and so does the map of streams. If a volume comes back with a count that
is not above it, its log, term and vote may be older than what its broker has said since. That broker counts
as out of contact. It is told the count, gives its volume a new incarnation, and ends. Its next process rejoins
every group under a new identity (SF-4).

A volume that was put back to a state of the last known process or a later one has a count above the known
one, and is not noticed here.
"""

from __future__ import annotations

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.ports import PeerInfo
from supercluster.broker.process_count import starts_of


class PutBackError(Exception):
    """This process may take no part any more: the next one does, with the volume's new incarnation."""


def is_put_back(count: int, known: int) -> bool:
    """Did the process with this number start on a state of before the known one, or beside it?"""
    return count != known and starts_of(count) <= starts_of(known)


class PutBackVolumes:
    """What one broker knows of the others' volumes, and hears of its own."""

    def __init__(self, env: Environment, peers: Peers, map_view: MapView) -> None:
        self._env = env
        self._peers = peers
        self._map = map_view
        self._heard: dict[str, tuple[str, int]] = {}
        """Node → the incarnation of its volume, and the highest number of a process on it."""
        self._out: dict[str, tuple[str, int]] = {}
        """Linked brokers that count as out of contact, and what each is told."""

    def _known(self, node: str, incarnation: str) -> int:
        """The highest number of a process on that volume; 0: none is known."""
        heard, count = self._heard.get(node, ("", 0))
        return max(count if heard == incarnation else 0, self._map.process_count_of(node, incarnation))

    def takes_link(self, peer: PeerInfo) -> bool:
        """A broker is linked. False: its volume was put back, and it counts as out of contact."""
        known = self._known(peer.node, peer.incarnation)
        self._out.pop(peer.node, None)
        if peer.process_count and known and is_put_back(peer.process_count, known):
            self._out[peer.node] = peer.incarnation, known
            self._env.event(
                self._map.meta_id,
                "VolumePutBack",
                f"{peer.node} counts as out of contact: its volume was put back to a state of before its start {starts_of(known)}",
            )
            self.tell(peer.node)
            return False
        self._heard[peer.node] = (peer.incarnation, max(peer.process_count, known))
        return True

    def lost_link(self, node: str) -> bool:
        """True: it counted as out of contact before."""
        return self._out.pop(node, None) is not None

    def shuts_out(self, node: str) -> bool:
        """Are this broker's frames not to be believed?"""
        return node in self._out

    def tell(self, node: str) -> None:
        """Tell a broker of its volume, again whenever it says something: the word may be lost."""
        self._peers.post(node, Frame.PUT_BACK, frames.encode_put_back(*self._out[node]))

    def on_put_back(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.PUT_BACK: another broker knows of a later process on this volume.

        Raises:
            PutBackError: end the process.
            DiskError: the disk did not take the new incarnation; the process has to end too.
        """
        store = self._env.store
        incarnation, known = frames.decode_put_back(body)
        if incarnation != store.incarnation or not is_put_back(store.process_count, known):
            return
        text = f"{node} knows of start {starts_of(known)} of the volume, and this is start {starts_of(store.process_count)}"
        self._env.event(
            self._map.meta_id,
            "VolumePutBack",
            f"the volume was put back to an earlier state: {text}; the next process rejoins all groups under a new identity",
        )
        store.renew()
        raise PutBackError(text)
