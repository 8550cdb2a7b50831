"""Connections that are being closed for a redirect, one by one: announced, sent FIN, read to their own FIN,
then settled (rule 10, SF-16).

Before FIN the socket is not read until the client has received its outstanding answers, within a bound: none
can be sent after FIN. Nor is FIN sent while the client's publishes have no verdict: with the link cut, they
would arrive after those that it sends to green. Publishes that it sent meanwhile are read after FIN, and
stored.

Blue reports the connection to green as closing, from just before FIN, since no client goes to green before
that, until its last publish has a verdict. A client whose socket is read, and which neither sends nor closes
for half a second, is not on green either. While the socket is not read, its FIN may be queued after its
earlier input. A client may also leave by itself after INFO has named green: its connection counts as closing
as long as its publishes have no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.routing.origin import ForeignOrigin
from supercluster.broker.ports import ClientInfo, Publisher
from supercluster.broker.protocol.redirect_words import Closing

HUSH_MS = 1000
"""How long answers are waited for."""

SETTLE_MS = 10_000
"""How long publishes without a verdict hold up FIN, and how long the account of a connection that is gone counts as unsettled; a
stream without a majority settles nothing."""

CLOSES_MS = 500
"""Behind FIN, a client of which nothing has come for this long although it is read keeps its connection, and is on no other server."""

_HUSHED = " parting"
"""A reason for not reading that is no broker's name."""

Asked = Callable[[Mapping[Publisher, ClientInfo]], set[Publisher]]


class Stage(Enum):
    """Of one connection, in this order."""

    TOLD = "told"
    HUSHED = "hushed"
    CLEARED = "cleared"
    """It has its answers: FIN follows in the next step, when green was told of it."""
    FINISHED = "finished"
    LEFT = "left"
    """Its socket is gone: whether it has unsettled publishes is asked in the next step."""
    GONE = "gone"
    """It has some."""


@dataclass(slots=True)
class _Parting:
    client: Client
    account: str
    stage: Stage
    due_ms: int
    """When the stage ends at the latest; `TOLD` ends then, not before."""
    foreign: Collection[ForeignOrigin] = ()
    """What it is in other accounts; the client forgets that when it is gone."""
    read_bytes: int = 0
    """Of the client, when it was last looked at behind FIN."""
    quiet_ms: int = 0
    """Since when, behind FIN, it is read and nothing comes."""


class Partings:
    """Of one broker. `awaiting` and `unsettled` say whose answers and whose publishes are outstanding."""

    def __init__(self, server: ClientServer, awaiting: Asked, unsettled: Asked) -> None:
        self._server = server
        self._awaiting = awaiting
        self._unsettled = unsettled
        self._partings: dict[int, _Parting] = {}
        self.cut_off = 0
        """Did not close within the time that a lame duck waits."""

    def __len__(self) -> int:
        return len(self._partings)

    def __contains__(self, connection: object) -> bool:
        return connection in self._partings

    def closing(self, now_ms: int) -> frozenset[Closing]:
        """Connections whose clients may be on green by now, and which may have publishes that are not settled."""

        def is_closing(found: _Parting) -> bool:
            is_open = found.stage is Stage.FINISHED and now_ms < found.quiet_ms + CLOSES_MS
            return is_open or found.stage in (Stage.CLEARED, Stage.GONE)

        partings = self._partings.items()
        return frozenset(
            Closing(found.account, str(number)) for number, found in partings if is_closing(found)
        )

    def begin(self, client: Client, grace_ms: int, now_ms: int) -> None:
        """The client was told where to go."""
        self._partings[client.id] = _Parting(client, client.account.name, Stage.TOLD, now_ms + grace_ms)

    def left(self, client: Client, now_ms: int) -> None:
        """The client is gone, whether it was asked or not."""
        due_ms, foreign = now_ms + SETTLE_MS, tuple(client.foreign.values())
        self._partings[client.id] = _Parting(client, client.account.name, Stage.LEFT, due_ms, foreign)

    def _asked(self, ask: Asked, *stages: Stage) -> set[Publisher]:
        return answered_for(
            {found.client: found.foreign for found in self._partings.values() if found.stage in stages}, ask
        )

    def step(self, now_ms: int) -> None:
        """Carry each of them on, as far as it is due."""
        for found in self._partings.values():
            if not found.client.closed:
                found.foreign = tuple(found.client.foreign.values())
        awaiting = self._asked(self._awaiting, Stage.HUSHED)
        unsettled = self._asked(self._unsettled, Stage.HUSHED, Stage.GONE, Stage.LEFT)
        for number, found in list(self._partings.items()):
            client = found.client
            if found.stage not in (Stage.LEFT, Stage.GONE) and client.closed:
                continue  # `left` is about to be called.
            match found.stage:
                case Stage.TOLD if now_ms >= found.due_ms:
                    client.stall(_HUSHED)
                    found.stage, found.due_ms = Stage.HUSHED, now_ms + HUSH_MS
                case Stage.HUSHED if client in unsettled and now_ms < found.due_ms - HUSH_MS + SETTLE_MS:
                    pass
                case Stage.HUSHED if now_ms >= found.due_ms or not (
                    client in awaiting or client.has_input or client.subscriber.out
                ):
                    found.stage = Stage.CLEARED
                case Stage.CLEARED:
                    client.finish()
                    client.unstall(_HUSHED)
                    found.stage, found.quiet_ms = Stage.FINISHED, now_ms
                    found.due_ms = now_ms + self._server.limits.drain_ms
                case Stage.FINISHED if now_ms >= found.due_ms:
                    self.cut_off += 1
                    client.close("asked to leave, and did not", tell=False)
                case Stage.FINISHED if client.is_stalled or client.read_bytes > found.read_bytes:
                    found.read_bytes, found.quiet_ms = client.read_bytes, now_ms
                case Stage.LEFT | Stage.GONE if now_ms >= found.due_ms or not (
                    client in unsettled or client.has_input
                ):
                    del self._partings[number]
                case Stage.LEFT:
                    found.stage = Stage.GONE


def answered_for(clients: Mapping[Client, Collection[ForeignOrigin]], ask: Asked) -> set[Publisher]:
    """Of these clients, those that the answer names, in another account as well: there a client has another name."""
    if not clients:
        return set()
    asked: dict[Publisher, ClientInfo] = {client: client.info for client in clients}
    behind: dict[Publisher, Client] = {
        foreign: client for client, found in clients.items() for foreign in found
    }
    asked |= {foreign: foreign.info for foreign in behind if isinstance(foreign, ForeignOrigin)}
    return {behind.get(found, found) for found in ask(asked)}
