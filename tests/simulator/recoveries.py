"""What a forced recovery may lose, and nothing else (RP-8, SF-9).

When a broker begins a new lineage, the oracle compares its log with all that was committed before: what was announced as
certain has to be there; what is not is lost from now on, and has to be in files of the old members. From then on nobody who
knows of the new lineage works in an older one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from zlib import crc32

from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.replica.lineage import is_same_stream, lineage_of
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.log_reader import decode_stored
from supercluster.broker.jetstream.stream.replica import StreamReplica
from supercluster.broker.raft.entry import Entry, decode_entries

if TYPE_CHECKING:
    from tests.simulator.ledger import History, Ledger
    from tests.simulator.world import World


class Recoveries:
    """See the module."""

    def __init__(self, ledger: Ledger, world: World) -> None:
        self._ledger = ledger
        self._world = world
        self.lost: set[bytes] = set()
        """Payloads that were committed in a lineage that is over, and are not in the next one."""
        self._over: set[str] = set()
        self.begun = 0

    def watch(self, replica: Replica) -> None:
        """A copy is opened: the first of a new lineage is the chosen one."""
        if (
            not isinstance(replica, StreamReplica)
            or not lineage_of(replica.id)
            or replica.id in self._ledger.groups
        ):
            return
        recovery = replica.assignment.recovery
        assert recovery is not None
        if replica.member != recovery.member:
            return
        self.begun += 1
        old = self._ledger.groups[recovery.source]
        kept = self._common(replica, old)
        certain = max((seq for seq in old.message_at if seq <= recovery.commit_seq), default=0)
        kept_seq = self._last_seq(replica, kept)
        if kept_seq < certain:
            raise self._ledger.broken(
                f"SF-9: {replica.member} begins {replica.id} with committed messages up to {kept_seq}, {certain} were sure"
            )
        self._ledger.groups[replica.id] = self._heir(replica, old, kept, kept_seq)
        self._over |= {
            one for one in self._ledger.groups if one != replica.id and is_same_stream(one, replica.id)
        }

    def _common(self, replica: StreamReplica, old: History) -> int:
        """Up to which entry the log is what was committed."""
        index, log = old.last_index, replica.log
        while index > log.base_index:
            entry = log.entry(index)
            if entry is not None and old.records.get(index) == (entry.term, crc32(entry.record)):
                return index
            index -= 1
        return log.base_index

    def _last_seq(self, replica: StreamReplica, index: int) -> int:
        last = 0
        for position in range(replica.log.base_index + 1, index + 1):
            entry = replica.log.entry(position)
            if entry is not None and entry.count:
                last = entry.last_seq
        return last

    def _heir(self, replica: StreamReplica, old: History, kept: int, kept_seq: int) -> History:
        """The new lineage's history so far; what is not in it is lost."""
        ledger = self._ledger
        heir = type(old)(
            records={index: record for index, record in old.records.items() if index <= kept},
            last_index=kept,
            states={index: state for index, state in old.states.items() if index <= kept},
            last_seq=kept_seq,
        )
        for seq, payload in sorted(old.message_at.items()):
            if seq > kept_seq:
                self.lost.add(payload)
                ledger.stored.pop(payload, None)
                ledger.acked.pop(payload, None)
                continue
            heir.message_at[seq] = payload
            heir.seq_of[payload] = seq
            ledger.stored[payload] = (replica.id, seq)
            publisher, _, number = payload.partition(b":")
            heir.last_of_publisher[publisher] = int(number)
        return heir

    def is_over(self, group_id: str) -> bool:
        return group_id in self._over

    def committed_late(self, entry: Entry, history: History) -> None:
        """By members who have not heard of the new lineage: announced as lost."""
        if not entry.count:
            return
        decoded = decode_stored(entry)
        for seq in range(entry.first_seq, entry.last_seq + 1):
            payload = decoded.message(seq).payload
            history.message_at[seq] = payload
            if payload not in self._ledger.stored:
                self.lost.add(payload)
        history.last_seq = entry.last_seq

    def excuses(self, payload: bytes, seq: int) -> bool:
        """Was the acknowledgement one of a lineage that is over?"""
        return any(self._ledger.groups[one].message_at.get(seq) == payload for one in self._over)

    def after_turn(self, node: str, core: BrokerCore) -> None:
        """SF-9: who knows of a newer lineage does not work in an older one."""
        if not self.begun or core.meta is None:
            return
        current = [found.group for found in core.meta.state.streams.values() if found.recovery is not None]
        for group_id in (*core.groups, *core.ingest.windows):
            newer = next((one for one in current if one != group_id and is_same_stream(one, group_id)), None)
            if newer is not None and lineage_of(newer) > lineage_of(group_id):
                raise self._ledger.broken(f"SF-9: {node} knows {newer} and works in {group_id}")

    def in_files(self) -> set[bytes]:
        """Payloads of lost messages that are in files of old members."""
        found: set[bytes] = set()
        for node in self._world.nodes.values():
            disk = node.store.disk
            for path in disk.paths():
                if not path.startswith("discarded/") or not path.endswith(".entries"):
                    continue
                _, _, records = disk.read_file(path).partition(b"\n")
                for entry in decode_entries(records):
                    if entry.count:
                        decoded = decode_stored(entry)
                        found |= {
                            decoded.message(seq).payload for seq in range(entry.first_seq, entry.last_seq + 1)
                        }
        return found
