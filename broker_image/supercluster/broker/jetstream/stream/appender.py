"""What a stream's leader appends to its log, and what becomes of it when Raft does not take it.

Publishes are judged against the log's end, with all that is not committed yet (`publish/admission.py`), before the entry is proposed. When
it is not taken, all that was judged with it is void: whoever waits is told to ask again, and what comes next is judged anew,
from what the log really ends with (SF-12). What is taken is answered when it is applied (`stream/waiters.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.encoding.ack_subjects import Ack, again
from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import Section, packed, sections
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.jetstream.stream.waiters import Waiting
from supercluster.broker.raft.entry import Entry, EntryKind

if TYPE_CHECKING:
    from supercluster.broker.jetstream.stream.replica import StreamReplica

# So many frames of acknowledgements wait for the end of a hand-over; those behind go back to the brokers that sent them.
ACKS_MAX = 4096


class Appending:
    """Of one stream's replica, while it leads."""

    def __init__(self, group: StreamReplica, waiting: Waiting) -> None:
        self._group = group
        self._waiting = waiting
        self.judge: Admission | None = None
        """None: this replica does not lead."""
        self.config_sent = 0
        """The newest configuration that is in the log, or in the entry that is being put together."""
        self.grown_bytes = 0
        """What this replica has appended as the leader."""
        self._acks: list[tuple[str, list[Ack]]] = []
        """Acknowledgements, by the broker that sent them, that are taken when an entry can say so."""

    def begin(self) -> None:
        """This replica leads, and what it judges comes behind the log's end."""
        self.judge = Admission(self._group.state, self._uncommitted())
        self.config_sent = self._group.state.config_version
        self.judge.batches.room = self._group.host.batch_room

    def end(self) -> None:
        """It does not lead any more."""
        self.judge = None

    # ---- acknowledgements -----------------------------------------------------------------------------------------

    def acknowledge(self, node: str, acks: list[Ack]) -> None:
        """Acknowledgements of a broker's clients. While leadership is handed over they wait for what becomes of that."""
        if len(self._acks) < ACKS_MAX:
            self._acks.append((node, acks))
        else:
            self._group.host.acks_back(node, self._group.id, acks)

    def put_acks(self, proposal: Proposal) -> None:
        """The turn has come."""
        proposal.acks, self._acks = self._acks, []
        for node, acks in proposal.acks:
            self._group.consumers.acknowledge(node, acks)

    def give_acks_back(self) -> None:
        """The next leader takes what this one did not, or may have taken in vain."""
        repeated = [(node, again(sent)) for node, sent in self._waiting.give_back()]
        acks, self._acks = [*repeated, *self._acks], []
        for node, sent in acks:
            if sent:
                self._group.host.acks_back(node, self._group.id, sent)

    # ---- entries --------------------------------------------------------------------------------------------------

    def propose(self, proposal: Proposal) -> None:
        """Append it as one entry, if there is anything to append."""
        group = self._group
        if not proposal.payload:
            if proposal.replies or proposal.acks:
                # Nothing new to replicate: these acknowledgements repeat what is in the log's uncommitted end.
                self._waiting.proposed(group.log.last_index, proposal)
                self._waiting.applied(group.applied_index, [])
            return
        payload = b"".join(proposal.payload)
        entry = group.raft.propose(
            packed(payload) if proposal.count and group.state.config.compression != "none" else payload,
            time_ns=group.leader_time_ns(),
            first_seq=proposal.first_seq if proposal.count else 0,
            count=proposal.count,
        )
        if entry is None:
            # Not the leader any more, or handing over, or the disk is full: nothing was taken, everybody asks again.
            for done in (*proposal.commands, *proposal.noted):
                done(None)
            self._acks[:0] = [(node, again(acks)) for node, acks in proposal.acks]
            if self.judge is not None:
                self._rejudge()
            return
        assert self.judge is not None
        self.judge.end.appended(entry, len(entry.record))
        self.grown_bytes += len(entry.record)
        self._waiting.proposed(entry.index, proposal)
        for key, run in proposal.early:
            group.host.verdicts(group.id, key, [run], appended=True)

    def append(self, proposal: Proposal) -> bool:
        """False: it was not appended, and what was judged with it is void."""
        judge = self.judge
        self.propose(proposal)
        return self.judge is judge

    def _rejudge(self) -> None:
        """A proposal was judged and not appended: judge anew from what the log really ends with."""
        group = self._group
        group.intake.not_appended()
        self.begin()
        group.consumers.rewind(group.state, self._uncommitted_ops())

    def _uncommitted(self) -> Sequence[Entry]:
        """What is in the log and not applied."""
        log, first = self._group.log, self._group.applied_index + 1
        return log.entries(first, log.last_index, 1 << 40) if log.last_index >= first else []

    def _uncommitted_ops(self) -> dict[str, list[bytes]]:
        """Consumer operations among that, by consumer."""
        found: dict[str, list[bytes]] = {}
        for entry in self._uncommitted():
            if entry.kind == EntryKind.BATCH:
                for kind, body in sections(entry.payload):
                    if kind == Section.CONSUMER_OPS:
                        reader = Reader(body)
                        found.setdefault(reader.text(), []).append(bytes(reader.rest()))
        return found
