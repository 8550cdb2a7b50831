"""Appends to the log of a stream's leader, and handles entries that Raft does not accept.

Publishes are judged against the log's end, including uncommitted entries (`publish/admission.py`), before the
entry is proposed. If Raft does not accept the entry, every verdict made with it is void: its callers are
asked to retry, and later publishes are judged by the log as it really ends (SF-12). An accepted entry is
answered when it is applied (`stream/waiters.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.jetstream.consumer.leaders import ConsumerLeaders
from supercluster.broker.jetstream.encoding.ack_subjects import Ack, again
from supercluster.broker.jetstream.encoding.codec import Reader, u8
from supercluster.broker.jetstream.encoding.sections import Section, packed, sections
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.publish.inbox import PublishInbox
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.proposal import Done, Proposal
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.stream.waiters import Waiters
from supercluster.broker.moves.note import Note
from supercluster.broker.raft.entry import Entry, EntryKind

# So many frames of acknowledgements wait for the end of a hand-over; those behind go back to the brokers that sent them.
ACKS_MAX = 4096


class Appender:
    """Of one stream's replica, while it leads."""

    def __init__(
        self,
        replica: Replica,
        stream: HeldStream,
        host: StreamHost,
        inbox: PublishInbox,
        consumers: ConsumerLeaders,
        waiters: Waiters,
    ) -> None:
        self._replica = replica
        self._stream = stream
        self._host = host
        self._inbox = inbox
        self._consumers = consumers
        self._waiters = waiters
        self.admission: Admission | None = None
        """None: this replica does not lead."""
        self.grown_bytes = 0
        """What this replica has appended as the leader."""
        self._acks: list[tuple[str, list[Ack]]] = []
        """Acknowledgements, by the broker that sent them, that are taken when an entry can say so."""
        self._behind_acks: list[Done] = []
        """Answers that show what these acknowledgements change."""

    def begin(self) -> None:
        """This replica leads, and what it judges comes behind the log's end."""
        self.admission = Admission(self._stream.state, self._uncommitted())
        self.admission.batches.room = self._host.batch_room

    def opened(self) -> None:
        """The stream is not closed any more. Its sessions may have other names: what comes now is judged by the state in force."""
        self.begin()

    def end(self) -> None:
        """It does not lead any more."""
        self.admission = None

    # ---- acknowledgements -----------------------------------------------------------------------------------------

    def acknowledge(self, node: str, acks: list[Ack]) -> None:
        """Acknowledgements of a broker's clients. While leadership is handed over they wait for what becomes of that."""
        if len(self._acks) < ACKS_MAX:
            self._acks.append((node, acks))
        else:
            self._host.acks_back(node, self._replica.id, acks)

    def put(self, turn: LeaderTurn) -> None:
        """Acknowledgements become operations of their consumers."""
        turn.proposal.acks, self._acks = self._acks, []
        for node, acks in turn.proposal.acks:
            self._consumers.acknowledge(node, acks)

    def behind_acks(self, done: Done) -> None:
        """Call it with 1 when the acknowledgements that came before are applied, with None if this replica does not lead so long."""
        if not self._acks and not self._waiters.await_acks:
            done(1)
        elif len(self._behind_acks) < ACKS_MAX:
            self._behind_acks.append(done)
        else:
            done(None)

    def put_answers(self, turn: LeaderTurn) -> None:
        """All acknowledgements of the turn are in its entries: what waits for them waits for the last one."""
        if not self._acks:
            turn.proposal.noted += self._behind_acks
            self._behind_acks = []

    def give_acks_back(self) -> None:
        """The next leader takes what this one did not, or may have taken in vain."""
        waiting, self._behind_acks = self._behind_acks, []
        for done in waiting:
            done(None)
        repeated = [(node, again(sent)) for node, sent in self._waiters.give_back()]
        acks, self._acks = [*repeated, *self._acks], []
        for node, sent in acks:
            if sent:
                self._host.acks_back(node, self._replica.id, sent)

    @property
    def is_closed(self) -> bool:
        """Does the stream take nothing in, up to the end of this leader's log?"""
        return self.admission is not None and (self.admission.end.is_closed or self._stream.is_held)

    @property
    def is_cut_pending(self) -> bool:
        """Has this leader appended what takes the stream's cut further, and not applied it?"""
        return self.admission is not None and self.admission.end.is_cut_pending

    # ---- entries --------------------------------------------------------------------------------------------------

    def propose(self, proposal: Proposal) -> None:
        """Append it as one entry, if there is anything to append."""
        if not proposal.payload:
            if proposal.replies or proposal.acks or proposal.noted:
                # Nothing new to replicate: these acknowledgements repeat what is in the log's uncommitted end.
                self._waiters.proposed(self._replica.log.last_index, proposal)
                self._waiters.applied(self._replica.applied_index, [])
            return
        payload = b"".join(proposal.payload)
        entry = None if self.is_closed else self._append(proposal, payload)
        if entry is None:
            # Not the leader any more, handing over, or fenced, or the disk is full: nothing was taken, everybody asks again.
            for done in (*proposal.commands, *proposal.noted):
                done(None)
            self._acks[:0] = [(node, again(acks)) for node, acks in proposal.acks]
            if self.admission is not None:
                self._judge_anew()
            return
        assert self.admission is not None
        self.admission.end.appended(entry, len(entry.record))
        self.grown_bytes += len(entry.record)
        self._waiters.proposed(entry.index, proposal)
        for key, run in proposal.early:
            self._host.verdicts(self._replica.id, key, [run], appended=True)

    def _append(self, proposal: Proposal, payload: bytes, kind: EntryKind = EntryKind.BATCH) -> Entry | None:
        is_packed = proposal.count and self._stream.state.config.compression != "none"
        return self._replica.raft.propose(
            packed(payload) if is_packed else payload,
            time_ns=self._replica.leader_time_ns(),
            first_seq=proposal.first_seq if proposal.count else 0,
            count=proposal.count,
            kind=kind,
        )

    def append(self, proposal: Proposal) -> bool:
        """False: it was not appended, and what was judged with it is void."""
        admission = self.admission
        self.propose(proposal)
        return self.admission is admission

    def put_note(self, note: Note) -> int:
        """Append what a move's leader leaves for the next one. Returns the entry's index; 0: it was not taken."""
        proposal, log = Proposal(), self._replica.log
        proposal.add(Section.MOVE_NOTE, [u8(note.mark), note.encode()])
        before = log.last_index
        self.propose(proposal)
        return log.last_index if log.last_index > before else 0

    def put_cut(self, kind: Section, body: bytes) -> int:
        """Append an entry of its own that takes the stream's cut further: the one thing that a closed stream puts. Returns the
        entry's index; 0: it was not taken."""
        if self.admission is None:
            return 0
        proposal = Proposal()
        proposal.add(kind, [body])
        entry = self._append(proposal, b"".join(proposal.payload), EntryKind.DURABLE)
        if entry is None:
            return 0
        self.admission.end.appended(entry, len(entry.record))
        self.admission.end.cut_moves(entry.index)
        self.admission.batches.end_all()
        return entry.index

    def _judge_anew(self) -> None:
        """A proposal was judged and not appended: judge anew from what the log really ends with."""
        self._inbox.not_appended()
        self.begin()
        self._consumers.rewind(self._stream.state, self._uncommitted_ops())

    def _uncommitted(self) -> Sequence[Entry]:
        """What is in the log and not applied."""
        log, first = self._replica.log, self._replica.applied_index + 1
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
