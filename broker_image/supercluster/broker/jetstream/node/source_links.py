"""A broker's part in sourcing from other streams: the streams that wait for an origin's leader, and the
frames between them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.links.source_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.ports import Channel

if TYPE_CHECKING:
    from supercluster.broker.jetstream.config.sources import Origin
    from supercluster.broker.jetstream.meta.assignment import Assignment


class SourceLinks:
    def __init__(self, env: Environment, peers: Peers, copies: Copies, map_view: MapView) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._origins: dict[str, frozenset[str]] = {}
        """By the group of a stream that is led here: the groups of its origins."""
        self._targets: dict[str, set[str]] = {}
        """The other way round."""

    def watch(self, target: str, origins: Iterable[str]) -> None:
        """The stream's leader here waits for these origins' leaders from now on, and for no others."""
        before, after = self._origins.pop(target, frozenset()), frozenset(origins)
        for origin in before - after:
            found = self._targets[origin]
            found.discard(target)
            if not found:
                del self._targets[origin]
        for origin in sorted(after - before):
            self._targets.setdefault(origin, set()).add(target)
        if after:
            self._origins[target] = after

    def find(self, account: str, origin: Origin) -> Assignment | ApiError | None:
        """The stream that an origin of a stream of that account is. Another account's is read the same way as one's own, where both
        what is asked for its messages (a consumer) and those messages are exported and imported, as a consumer would need it."""
        external = origin.external
        if external is None or external.api in ("", f"$JS.{self._env.settings.domain}.API"):
            return self._map.stream_of(account, origin.name)
        call = f"CONSUMER.CREATE.{origin.name}.x".encode()
        home, asked = self._env.accounts.asked(account, f"{external.api}.".encode() + call)
        if asked not in (b"$JS.API." + call, f"$JS.{self._env.settings.domain}.API.".encode() + call):
            return errors.detailed(
                errors.STREAM_NOT_FOUND,
                f"no import of account {account} leads from {external.api} to an API",
            )
        delivered = f"{external.deliver}.x".encode()
        if not (external.deliver or home == account) or not self._env.accounts.hears(
            account, home, delivered
        ):
            return errors.detailed(
                errors.STREAM_NOT_FOUND,
                f"account {account} has to import the subjects below {external.deliver or 'deliver'!r} from {home}",
            )
        return self._map.stream_of(home, origin.name)

    def leader_changed(self, origin: str) -> None:
        """Somebody else leads the origin, or nobody does."""
        for target in sorted(
            self._targets.get(origin, ())
        ):  # In one order whatever names hash to: runs replay.
            self._copies.touch(target)

    def all_changed(self) -> None:
        """The map of streams is another, or a broker was lost: everybody looks who leads his origins."""
        for target in self._origins:
            self._copies.touch(target)

    def ask(self, node: str, ask: OriginAsk) -> bool:
        """Ask an origin's leader. False: there is no link."""
        return self._peers.is_linked(node) and self._peers.post(node, Frame.ORIGIN_ASK, ask.encode())

    def notify(self, node: str, told: OriginTold) -> bool:
        """Answer: messages go the way of bulk copies, behind which no heartbeat waits."""
        if node == self._env.node or not told.seqs:
            return self._peers.post(node, Frame.ORIGIN_TOLD, told.encode())
        return self._peers.network.send(node, Frame.ORIGIN_TOLD, told.encode(), Channel.BULK)

    def on_origin_told(self, node: str, body: memoryview, now_ms: int) -> None:
        """Frame.ORIGIN_TOLD: an origin's leader answered."""
        told = OriginTold.decode(body)
        copy = self._copies.streams.get(told.target)
        if copy is not None and copy.replica.serves:
            copy.puller.on_origin_told(told, now_ms)
            self._copies.touch(told.target)
