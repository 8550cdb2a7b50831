"""A broker's part in taking messages from other streams: who waits for which origin's leader, and the frames between them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.source_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.ports import Channel

if TYPE_CHECKING:
    from supercluster.broker.jetstream.config.sources import Origin
    from supercluster.broker.jetstream.core.broker import BrokerCore
    from supercluster.broker.jetstream.meta.assignment import Assignment


def find_origin(core: BrokerCore, account: str, origin: Origin) -> Assignment | ApiError | None:
    """The stream that an origin of a stream of that account is. Another account's is read the same way as one's own, where both
    what is asked for its messages (a consumer) and those messages are exported and imported, as a consumer would need it."""
    external = origin.external
    if external is None or external.api in ("", f"$JS.{core.domain}.API"):
        return core.stream_of(account, origin.name)
    call = f"CONSUMER.CREATE.{origin.name}.x".encode()
    home, asked = core.book.asked(account, f"{external.api}.".encode() + call)
    if asked not in (b"$JS.API." + call, f"$JS.{core.domain}.API.".encode() + call):
        return errors.detailed(
            errors.STREAM_NOT_FOUND,
            f"nothing that account {account} imports leads from {external.api} to an API",
        )
    delivered = f"{external.deliver}.x".encode()
    if not (external.deliver or home == account) or not core.book.hears(account, home, delivered):
        return errors.detailed(
            errors.STREAM_NOT_FOUND,
            f"account {account} has to import from {home} what is delivered below {external.deliver or 'deliver'!r}",
        )
    return core.stream_of(home, origin.name)


class OriginLinks:
    """See the module."""

    def __init__(self, core: BrokerCore) -> None:
        self._core = core
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

    def leader_changed(self, origin: str) -> None:
        """Somebody else leads the origin, or nobody does."""
        for target in sorted(
            self._targets.get(origin, ())
        ):  # In one order whatever names hash to: runs replay.
            self._core.touch(target)

    def all_changed(self) -> None:
        """The map of streams is another, or a broker was lost: everybody looks who leads his origins."""
        for target in self._origins:
            self._core.touch(target)

    def ask(self, node: str, ask: OriginAsk) -> bool:
        """Ask an origin's leader. False: there is no link."""
        core = self._core
        return (node == core.node or node in core.peers) and core.post(node, Frame.ORIGIN_ASK, ask.encode())

    def notify(self, node: str, told: OriginTold) -> bool:
        """Answer: messages go the way of bulk copies, behind which no heartbeat waits."""
        core = self._core
        if node == core.node or not told.seqs:
            return core.post(node, Frame.ORIGIN_TOLD, told.encode())
        return core.network.send(node, Frame.ORIGIN_TOLD, told.encode(), Channel.BULK)

    def on_origin_told(self, body: memoryview) -> None:
        """An origin's leader answered."""
        told = OriginTold.decode(body)
        group = self._core.groups.get(told.target)
        if isinstance(group, StreamReplica) and group.serves:
            group.sourcing.on_origin_told(told, self._core.clock.monotonic_ms())
            self._core.touch(group.id)
