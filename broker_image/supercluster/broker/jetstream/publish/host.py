"""The interface of a broker to a stream's replica and its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from supercluster.broker.jetstream.config.limits import BatchRoom, ServerLimits
from supercluster.broker.jetstream.config.sources import Origin
from supercluster.broker.jetstream.encoding.ack_subjects import Ack
from supercluster.broker.jetstream.encoding.sections import SessionKey, VerdictRun
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.source_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.meta.migration_steps import MigrationStep
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.replica.host import GroupHost
from supercluster.broker.jetstream.subjects.interest_watch import InterestWatch
from supercluster.broker.jetstream.turn.questions import Questions
from supercluster.broker.jetstream.turn.share import TurnShare
from supercluster.broker.ports import Network


class StreamHost(GroupHost, Protocol):
    """Besides what every group needs."""

    network: Network
    interests: InterestWatch
    """Who waits for subscriptions to a subject."""
    world: str
    """What other super-clusters call this one (`migration/worlds.py`)."""
    domain: str
    """JetStream's domain; empty: there is none."""
    map: MapView
    """The map of streams as it is applied here."""
    batch_room: BatchRoom
    """For atomic batches of the streams that this broker leads."""

    @property
    def questions(self) -> Questions:
        """What is read in slices for clients."""

    @property
    def turn_share(self) -> TurnShare:
        """What may still be handed out in this turn."""

    @property
    def server_limits(self) -> ServerLimits:
        """What this broker allows every stream and consumer."""

    def takes_no_leaderships(self, node: str) -> bool:
        """Is the broker about to be restarted?"""

    def acks_back(self, node: str, group: str, acks: list[Ack]) -> None:
        """Acknowledgements that the broker sent are for the next leader."""

    def republish(self, account: str, message: tuple[bytes, bytes, bytes]) -> None:
        """Publish (subject, header, payload), as a client would: to subscribers, and to a stream that captures it."""

    def is_heard(self, account: str, subject: bytes) -> bool:
        """Would anybody get what is published to that subject, or a stream capture it?"""

    def end_restore(self, told: dict[str, Any], then: Callable[[bytes | None], None]) -> None:
        """Tell the meta group's leader how a restore ended; None: nobody answered in time."""

    def origin_of(self, account: str, origin: Origin) -> Assignment | ApiError | None:
        """The stream that an origin of a stream of that account is; None: there is none of that name. An error: no way leads
        there."""

    def who_leads(self, group_id: str) -> None:
        """Have the group's leader say so again, whoever it is."""

    def watch_origins(self, target: str, origins: Iterable[str]) -> None:
        """Touch the group whenever somebody else leads one of these."""

    def ask_origin(self, node: str, ask: OriginAsk) -> bool:
        """Ask an origin's leader for messages. False: that cannot be sent."""

    def tell_target(self, node: str, told: OriginTold) -> bool:
        """Answer the leader of a stream that takes messages."""

    def far_nodes(self, world: str) -> list[str]:
        """Brokers of another super-cluster that are linked, under their far names."""

    def migration_step(self, step: MigrationStep) -> None:
        """Ask the meta group's leader for a step. It may be lost: who asks asks again, until the map shows it."""

    def cut_moved(self, group: str) -> None:
        """An entry was applied that takes the stream's cut further: a copy that follows may have to become green's."""

    def leader_of(self, group_id: str) -> str | None: ...

    def post(self, node: str, frame: int, body: list[bytes | memoryview]) -> bool: ...

    def verdicts(self, group: str, key: SessionKey, runs: list[VerdictRun], *, appended: bool) -> None: ...
