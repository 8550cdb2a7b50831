"""The interface of the core (JetStream) to the network layer: the counterpart of `ports.Network` and
`ports.Publisher`.

A broker without a core is a plain NATS server: every hook is absent then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from supercluster.broker.ports import ClientInfo, FarSuperCluster, PeerInfo, Publisher
from supercluster.broker.protocol.imports import AccountBook
from supercluster.broker.settings.settings import Settings

if TYPE_CHECKING:
    from supercluster.broker.jetstream.admin.health import Ailment
    from supercluster.broker.jetstream.admin.totals import Totals
    from supercluster.broker.jetstream.stream.sealed import SealedMessages


class Window(Protocol):
    """A stream's ingest window on this broker."""

    @property
    def stream(self) -> str:
        """Name of the stream, for `Publisher.pause`, `resume` and refusals. Empty for what stands in for all windows
        while the map of streams is being read again (SF-14): then everything waits for `resume("")`."""

    def take(self, publisher: Publisher, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> bool:
        """Number and keep a message. False: the window is full; the message is offered again after
        `publisher.resume(stream)`, and until then nothing of this publisher for this stream is offered."""


class CallHooks(Protocol):
    """What the operator and people may ask for, besides JetStream's API."""

    def stream_recovery(
        self, method: str, account: str, name: str, body: object, then: Callable[[int, Any], None]
    ) -> None:
        """A person's call about a stream that lost its majority; `then` takes status and JSON, once."""

    def restart(self, method: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator asks what a restart has to wait for, or has leaderships handed over before it; `then` takes status
        and JSON."""

    def account(self, method: str, account: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about an account's limits; `then` takes status and JSON, once."""

    def map_recovery(self, method: str, body: object, then: Callable[[int, Any], None]) -> None:
        """A person's call about a map of streams that lost its majority; `then` takes status and JSON, once."""

    def broker(self, method: str, node: str, then: Callable[[int, Any], None], body: object = None) -> None:
        """The operator's call about a broker that goes for good; `then` takes status and JSON."""

    def cordon(self, method: str, node: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator's call about a broker that is to get no new copies; `then` takes status and JSON."""

    def move(
        self, method: str, account: str, name: str, body: object, then: Callable[[int, Any], None]
    ) -> None:
        """The operator plans, starts, watches or cancels a move; `then` is called once, with status and JSON."""

    def migration(self, act: str, migration_id: str, body: object, then: Callable[[int, Any], None]) -> None:
        """The operator plans, starts, watches, aborts or finalizes a migration; `then` is called once, with status and JSON."""

    def running_moves(self) -> tuple[int, dict[str, Any]]:
        """All moves that run in the super-cluster: status and JSON."""


class CoreHooks(Protocol):
    """Calls are made on the loop's thread, in the order in which the bytes came."""

    def capture(self, account: str, subject: bytes) -> Window | None:
        """The window of the stream that captures `subject`. Asked once per subject until `invalidate_captures`."""

    def captures_inboxes(self, account: str) -> bool:
        """Could any stream's filter match a subject that starts with `_INBOX.`? While not, unique reply subjects are
        routed without asking `capture`."""

    accounts: AccountBook
    """What accounts import and export, and which have no JetStream."""

    def interest_changed(self, account: str, subject: bytes) -> None:
        """A subscription to `subject` (wildcards allowed) came or went, here or at a linked broker."""

    def on_api(self, client: ClientInfo, subject: bytes, reply: bytes, header: bytes, payload: bytes) -> None:
        """A publish to `$JS.API.…`, `$JS.ACK.…` or `$JS.FC.…` by a client of this broker."""

    def call_api(
        self, info: ClientInfo, subject: bytes, payload: bytes, then: Callable[[bytes], None]
    ) -> None:
        """A call of JetStream's API, neither a pull nor a direct get, that came by the bulk port: `then` takes its answer, once."""

    def turn(self) -> None:
        """All that was readable has been parsed: append, replicate, commit, answer."""

    def on_frame(self, node: str, frame_type: int, body: memoryview) -> None:
        """A frame of type 32 or more from a linked broker."""

    def cluster_of(self, node: str) -> str | None:
        """The cluster that a broker belongs to, in contact or not, as far as it is known: names are not given twice."""

    def on_link_up(self, peer: PeerInfo) -> None:
        """Frames can be sent to the broker from now on."""

    def on_link_down(self, node: str) -> None:
        """Frames on the way to or from the broker may be lost."""

    def on_far_up(self, peer: PeerInfo) -> None:
        """Frames can be sent to a broker of another super-cluster from now on; `peer.node` is its far name."""

    def on_far_down(self, node: str) -> None:
        """Frames on the way to or from it may be lost."""

    def stood_still(self) -> None:
        """This process did nothing for a while, and the linked brokers may have given it up; called before anything
        that clients sent meanwhile is routed."""

    def peer_clock(self, node: str, clock_ns: int) -> None:
        """A linked broker's clock showed this Unix time, in nanoseconds, when it said so."""

    def peer_stalls(self, node: str, stall_ms: int) -> None:
        """A linked broker, or this one, stood still for so long at most, lately."""

    @property
    def has_work(self) -> bool:
        """Another turn is wanted even if no socket has anything to read."""

    def tick(self) -> None:
        """Time has passed; called at `next_deadline_ms` at the latest."""

    def next_deadline_ms(self) -> int:
        """When `tick` is wanted, on the monotonic clock; asked after every turn and tick."""


class Core(CoreHooks, Protocol):
    """The hooks, and what the process does with the core at start and end."""

    invalidate_captures: Callable[[], None]
    """Set by the process: called when the map of captured subjects has changed."""

    far_changed: Callable[[], None]
    """Set by the process: called when `wanted_far` answers something else."""

    def wanted_far(self) -> Mapping[str, FarSuperCluster]:
        """Super-clusters to be linked with, by identity."""

    @property
    def incarnation(self) -> str:
        """Random identity of the data directory (SF-4)."""

    @property
    def process_count(self) -> int:
        """The number of this process on its volume."""

    @property
    def meta_state(self) -> int:
        """0: the volume holds no meta log; otherwise the last index of it."""

    @property
    def lineage(self) -> str:
        """Of the map of streams, as HELLO says it: empty before it was ever recovered by force (SF-9)."""

    @property
    def bootstrap_id(self) -> str:
        """Which beginning the map of streams goes back to; empty while none was read (SF-26)."""

    @property
    def accepts_clients(self) -> bool:
        """May clients be let in (SF-14)? Asked again and again during the start."""

    def settings_changed(self, changed: Settings) -> None:
        """What a running broker takes over is in force in these."""

    def leave(self) -> None:
        """The broker is a lame duck: hand leaderships over."""

    @property
    def is_drained(self) -> bool:
        """All that clients sent is committed or refused, and nothing is led here that another could lead."""

    def close(self, *, clean: bool) -> None:
        """Close the volume."""

    @property
    def calls(self) -> CallHooks: ...

    def awaiting_answers(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        """Of these clients of this broker, who waits for an acknowledgement or an answer of the API; a pull request that waits
        for messages is none, since messages follow the client."""

    def unsettled(self, clients: Mapping[Publisher, ClientInfo]) -> set[Publisher]:
        """Of these clients of this broker, gone or not, whose publishes have no verdict yet, wanted or not."""

    def overdue(self, clients: Mapping[Publisher, ClientInfo], age_ms: int) -> set[Publisher]:
        """Of these clients of this broker, whose publishes have had no verdict for as long."""

    @property
    def troubles(self) -> list[str]:
        """What people should know though clients are served: one sentence each, for /healthz."""

    @property
    def map_level(self) -> int:
        """What a broker has to speak to read this broker's map of streams."""

    def jsz(self) -> dict[str, Any]:
        """What /jsz shows beside the streams."""

    def totals(self) -> Totals:
        """What the streams with a copy here amount to, by account."""

    def stream_details(
        self, account: str, *, led_only: bool, config: bool, consumers: bool, groups: bool
    ) -> Iterator[dict[str, Any]]:
        """An account's streams with a copy here, in NATS's field names, made one by one; `led_only`: those that are led here."""

    def ailment_of(self, account: str, stream: str, consumer: str) -> Ailment | None:
        """What is wrong with a stream, or one of its consumers if that is named, as far as this broker knows."""

    def sealed(self, account: str, name: str) -> tuple[SealedMessages | None, list[str]]:
        """This broker's copy of a stream for the bulk port, and the brokers that have copies by the map; none: it is no stream here."""

    def jsz_streams(self) -> Iterator[dict[str, Any]]:
        """The streams that /jsz shows, made one by one: there may be thousands."""
