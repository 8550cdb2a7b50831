"""A stream's judge, log and state without Raft: what a leader appends is committed when the test says so."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar, cast

from supercluster.broker.jetstream.config.stream import StreamConfig
from supercluster.broker.jetstream.config.stream_checks import read_stream
from supercluster.broker.jetstream.encoding.sections import (
    Section,
    SessionKey,
    decode_block,
    encode_block,
    encode_messages,
    encode_session,
    section,
    sections,
)
from supercluster.broker.jetstream.links.frames import Forward
from supercluster.broker.jetstream.publish.admission import Admission, Answer, Piece, Taken
from supercluster.broker.jetstream.publish.expiry import Expiry
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.proposal import Proposal
from supercluster.broker.jetstream.publish.scheduling import Scheduling
from supercluster.broker.jetstream.state.log_reader import logical_bytes
from supercluster.broker.jetstream.state.snapshot import restore, snapshot_of
from supercluster.broker.jetstream.state.stream import Applied, StreamState
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry
from supercluster.broker.storage.log.memory_log import MemoryLog

SECOND = 1_000_000_000
MS = 1_000_000
ORIGIN = SessionKey("east-0", "vol-a", 1)
SECOND_SESSION = SessionKey("east-1", "vol-c", 1)
SUBJECTS = (b"s.a", b"s.b", b"s.c", b"s.\xff")

Triple = tuple[bytes, bytes, bytes]


def config(**fields: Any) -> StreamConfig:
    return read_stream({"name": "S", "subjects": ["s.>"], "num_replicas": 1, **fields})


def message(subject: bytes = b"s.a", payload: bytes = b"", **headers: str) -> Triple:
    """A message; `Nats_Msg_Id="x"` becomes a header."""
    lines = b"".join(
        b"%s: %s\r\n" % (key.replace("_", "-").encode(), value.encode()) for key, value in headers.items()
    )
    return subject, b"NATS/1.0\r\n" + lines + b"\r\n" if lines else b"", payload


def block(*messages: Triple) -> bytes:
    return encode_block([part for one in messages for part in one])


Result = TypeVar("Result")


def result_of(question: Generator[int, None, Result], between: Callable[[], object] = lambda: None) -> Result:
    """What a long read comes to; `between` is called between two slices."""
    while True:
        try:
            next(question)
        except StopIteration as end:
            return cast("Result", end.value)
        between()


def turn_of(
    state: StreamState,
    admission: Admission,
    now_ns: int = 0,
    log: Any = None,
    append: Callable[[Proposal], bool] = lambda proposal: True,
) -> LeaderTurn:
    """A turn of a leader whose entries are taken as `append` says."""
    stream: Any = SimpleNamespace(state=state)
    appender: Any = SimpleNamespace(admission=admission, append=append, is_closed=False)
    return LeaderTurn(stream, log, appender, admission, now_ns // MS, now_ns)


class StreamStory:
    """One replica that leads."""

    def __init__(self, wanted: StreamConfig | None = None) -> None:
        self.log = MemoryLog()
        self.config = wanted or config()
        self.state = StreamState(self.config, 0, self.log)
        self.now_ns = SECOND
        self.numbers: dict[SessionKey, int] = {}
        self.uncommitted: list[Entry] = []
        self.admission = Admission(self.state, [])
        self.expiry = Expiry()
        self.scheduling = Scheduling()
        self.texts: list[bytes] = []
        """What the verdicts of the last `publish` say besides."""
        self.proposals: list[Proposal] = []
        self.open(ORIGIN)

    def turn(self) -> LeaderTurn:
        """The leader's next."""
        return turn_of(self.state, self.admission, self.now_ns, self.log)

    def append(
        self, *found: tuple[int, list[bytes | memoryview]], first_seq: int = 0, count: int = 0
    ) -> Entry:
        payload = b"".join(bytes(part) for kind, body in found for part in section(kind, body))
        entry = make_entry(
            index=self.log.last_index + 1,
            term=1,
            kind=EntryKind.BATCH,
            time_ns=self.now_ns,
            first_seq=first_seq if count else 0,
            count=count,
            payload=payload,
        )
        self.log.append([entry])
        self.admission.end.appended(entry, len(entry.record))
        self.uncommitted.append(entry)
        return entry

    def commit(self, entries: int = 1 << 30) -> list[Applied]:
        """Apply what is appended, oldest first."""
        done: list[Applied] = []
        while self.uncommitted and len(done) < entries:
            entry = self.uncommitted.pop(0)
            done.append(self.state.apply(entry))
            self.admission.end.applied(entry.index)
        return done

    def command(self, kind: Section, *body: bytes) -> list[int]:
        self.append((kind, list(body)))
        return self.commit()[-1].results

    def expire(self, expiry: Expiry | None = None) -> list[bytes]:
        """Append what a leader lets go at this moment, without committing. Returns the markers' subjects."""
        turn = self.turn()
        proposal = turn.proposal
        self.proposals.append(proposal)
        (expiry or self.expiry).put(turn)
        if not proposal.payload:
            return []
        kinds = self.append_proposal(proposal)
        own = [bytes(body[0]) for kind, body in kinds if kind == Section.OWN_MESSAGES]
        return decode_block(own[0]).parts()[0::3] if own else []

    def expired(self) -> list[bytes]:
        """Look now and commit."""
        subjects = self.expire()
        self.commit()
        for done in self.proposals.pop().commands:
            done(1)
        return subjects

    def send_on(self) -> list[bytes]:
        """Append and commit what schedules send on at this moment. Returns the subjects."""
        turn = self.turn()
        proposal = turn.proposal
        self.scheduling.put(turn)
        if not proposal.payload:
            return []
        kinds = self.append_proposal(proposal)
        self.commit()
        for done in proposal.commands:
            done(1)
        own = [bytes(body[0]) for kind, body in kinds if kind == Section.OWN_MESSAGES]
        return decode_block(own[0]).parts()[0::3] if own else []

    def restored(self) -> StreamState:
        """The state by its snapshot."""
        return restore(snapshot_of(self.state), self.log)

    def open(self, key: SessionKey) -> None:
        self.append((Section.SESSION_OPEN, [encode_session(key)]))
        self.admission.end.opened(key)
        self.commit()

    def offer(
        self, raw: bytes, first: int, key: SessionKey = ORIGIN, *, confirmed: int = 0, room: bool = True
    ) -> Taken:
        """Judge a block, and append it when it is taken."""
        forward = Forward(key, first, confirmed, self.admission.end.config_version, raw)
        taken = self.admission.take(forward, self.now_ns, room=room)
        if taken.pieces:
            self.append_pieces(taken.pieces)
        return taken

    def append_pieces(self, pieces: Sequence[Piece]) -> None:
        proposal = Proposal()
        for piece in pieces:
            run = piece.section.run
            proposal.put_own(piece.own, run.first_seq - len(piece.own) // 3)
            proposal.add(Section.MESSAGES, encode_messages(piece.section))
            proposal.count_from(run.first_seq, run.stored)
        self.append_proposal(proposal)

    def append_proposal(self, proposal: Proposal) -> list[tuple[int, list[bytes | memoryview]]]:
        kinds: list[tuple[int, list[bytes | memoryview]]] = [
            (kind, [body]) for kind, body in sections(b"".join(proposal.payload))
        ]
        self.append(*kinds, first_seq=proposal.first_seq, count=proposal.count)
        return kinds

    def publish(
        self, *messages: Triple, key: SessionKey = ORIGIN, room: bool = True
    ) -> list[tuple[int, ...]]:
        """Publish as the next numbers, without committing. Per message (sequence,) or (verdict, code, detail)."""
        first = self.numbers.get(key, 0) + 1
        taken = self.offer(block(*messages), first, key, room=room)
        assert taken.answer is Answer.TAKEN, taken
        verdicts: list[tuple[int, ...]] = []
        self.texts = []
        for run in (piece.section.run for piece in taken.pieces):
            self.numbers[key] = run.last_number
            exceptions = {item.offset: item for item in run.exceptions}
            seq = run.first_seq
            for offset in range(run.count):
                item = exceptions.get(offset)
                verdicts.append((seq,) if item is None else (item.verdict, item.code, item.seq))
                self.texts.append(b"" if item is None else item.text)
                seq += item is None
        return verdicts

    def store(self, *messages: Triple) -> list[int]:
        """Publish and commit; all have to be stored."""
        verdicts = self.publish(*messages)
        self.commit()
        assert all(len(verdict) == 1 for verdict in verdicts), verdicts
        return [verdict[0] for verdict in verdicts]

    def new_leader(self) -> None:
        """Another replica with the same log leads: it judges from its own state and the log's end."""
        self.admission = Admission(self.state, list(self.uncommitted))

    def held(self) -> list[int]:
        return [seq for seq in range(self.state.first_seq, self.state.last_seq + 1) if self.state.has(seq)]


def check_whole(state: StreamState) -> None:
    """What the state counts is what it holds."""
    held = [found for seq in range(state.first_seq, state.last_seq + 1) if (found := state.message(seq))]
    assert len(held) == state.messages
    assert state.num_deleted == state.last_seq + 1 - state.first_seq - state.messages
    assert sum(logical_bytes(found.subject, found.header, found.payload) for found in held) == state.bytes
    for subject in SUBJECTS:
        seqs = [found.seq for found in held if found.subject == subject]
        assert state.subjects.count(subject) == len(seqs)
        assert state.subjects.last_seq(subject) == (seqs[-1] if seqs else 0)
        assert state.subjects.first_seq_hint(subject) <= (seqs[0] if seqs else 0)
    if held:
        assert state.first_seq == held[0].seq
        assert state.first_time_ns == held[0].time_ns
