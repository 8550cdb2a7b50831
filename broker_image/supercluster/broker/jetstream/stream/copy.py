"""A stream's copy on this broker, as the parts that `stream/replica.py` assembles.

Requests about the stream work on it, and so do all other parts that read a copy or pass it something.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from supercluster.broker.jetstream.backup.receiver import RestoreReceiver
from supercluster.broker.jetstream.backup.sender import SnapshotSender
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.consumer.leaders import ConsumerLeaders
from supercluster.broker.jetstream.meta.assignment import Assignment
from supercluster.broker.jetstream.migration.current import CurrentMigration
from supercluster.broker.jetstream.moves.current import CurrentMove
from supercluster.broker.jetstream.moves.range_hasher import RangeHasher
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.publish.inbox import PublishInbox
from supercluster.broker.jetstream.publish.trimming import Trimming
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.sources.origin_reads import OriginReads
from supercluster.broker.jetstream.sources.puller import SourcePuller
from supercluster.broker.jetstream.stream.appender import Appender
from supercluster.broker.jetstream.stream.sink_release import SinkRelease
from supercluster.broker.jetstream.stream.waiters import Waiters
from supercluster.broker.raft.confchange import node_of


@dataclass(frozen=True, slots=True)
class StreamCopy:
    """See the module. All but the first three do something only while this replica leads."""

    replica: Replica
    stream: HeldStream
    range_hasher: RangeHasher
    host: StreamHost
    waiters: Waiters
    appender: Appender
    inbox: PublishInbox
    trimming: Trimming
    consumers: ConsumerLeaders
    puller: SourcePuller
    origin_reads: OriginReads
    move: CurrentMove
    migration: CurrentMigration
    snapshots: SnapshotSender
    restores: RestoreReceiver
    sink: SinkRelease
    coming: dict[str, list[ConsumerConfig | None]] = field(default_factory=dict)
    """Consumers that were asked for (None: to go) and are not applied yet, as the requests have them one behind the other:
    when the newest is not taken, it is the one before that the log ends with."""

    def set_assignment(self, assignment: Assignment) -> None:
        """The meta group has a new configuration: the leader writes it into the stream's log."""
        self.stream.assignment = assignment
        self.move.follow(self.host.clock.monotonic_ms())
        self.migration.follow(self.host.clock.monotonic_ms())

    @property
    def has_no_voter(self) -> bool:
        """Was the stream's only voter the copy whose place this one took, after it had lost data? It learns from nobody
        then, and may never vote by itself (SF-4)."""
        found, replica = self.stream.assignment, self.replica
        voters = (*found.members, *replica.raft.membership.all_voters)
        return (
            not replica.serves
            and found.move is None
            and found.config.storage == "file"
            and all(node_of(voter) == self.host.node and voter != replica.member for voter in voters)
        )
