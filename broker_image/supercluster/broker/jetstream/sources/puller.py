"""A stream's leader takes messages from other streams: the origin of a mirror, and the sources of any stream.

It asks the origin's leader for messages after the position at the end of its own log, one answer at a time.
It writes the messages and the new position in one entry (`docs/adr/mirrors-and-sources.md`). An answer counts
only while that position is still the one in the request. So no message is taken twice and none is skipped,
whichever leaders fail or streams move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.config.sources import MIRROR_KEY, Origin
from supercluster.broker.jetstream.encoding.sections import (
    Exceptional,
    Section,
    Verdict,
    encode_block,
    encode_mirrored,
)
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.source_frames import OriginAsk, OriginTold
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.atomic_batches import Candidate
from supercluster.broker.jetstream.publish.counters import BROKEN
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.message_admission import STREAM_FULL, STREAM_SEALED
from supercluster.broker.jetstream.publish.source_rewrite import SourceRewrite, origin_token
from supercluster.broker.jetstream.replica.lineage import base_of
from supercluster.broker.jetstream.state.source_positions import OriginPosition, encode_taken
from supercluster.broker.jetstream.state.source_readers import name_for
from supercluster.broker.jetstream.state.stream import StreamState

if TYPE_CHECKING:
    from supercluster.broker.jetstream.config.stream import StreamConfig

# An ask without an answer for so long is repeated; origins answer within 4 s even when there is nothing.
ASK_AGAIN_MS = 6000
# While an origin is not there, or has no leader that is known.
MISSING_RETRY_MS = 500
# A stream that is full, or whose followers are slow, is looked at again after this.
HELD_MS = 250
# Sequences that an origin has no messages for, and that are written as empty ones in between: longer stretches end an entry.
PLACEHOLDERS_MAX = 64
# A position that moved on without a message is written down when it moved so far.
QUIET_SEQS = 10_000
# As for publishes: appended and not applied.
UNCOMMITTED_BYTES_MAX = 16 * 1024 * 1024


@dataclass(slots=True)
class _Reader:
    """One origin, as the leader reads it."""

    key: str
    origin: Origin
    rewrite: SourceRewrite | None = None
    group: str = ""
    told_stream: str = ""
    """What the origin calls the stream that takes."""
    node: str = ""
    number: int = 0
    asked_with: OriginPosition | None = None
    """The position at the end of the log when it was asked last; None: there was none."""
    is_asked: bool = False
    again_ms: int = 0
    """When to ask (again)."""
    scanned: int = -1
    """Up to here the origin has nothing more that is meant, behind that position; -1: not known."""
    told: OriginTold | None = None
    heard_ms: int = -1
    lag: int = 0
    error: ApiError | None = None
    told_seq: int = 0
    """The last message that the origin told of."""
    whole_seq: int = 0
    whole_told_ms: int = -1
    """The origin had nothing behind that sequence then; -1: that is applied, or it is not known."""
    whole_ms: int = -1
    """When the origin had nothing that is not applied here; -1: not since this replica leads."""

    def note_whole(self, last_seq: int) -> None:
        """The stream's applied messages end there."""
        if self.whole_told_ms >= 0 and last_seq >= self.whole_seq:
            self.whole_ms, self.whole_told_ms = self.whole_told_ms, -1


class SourcePuller:
    """See the module. One per replica; does something while it leads."""

    def __init__(self, group: str, account: str, stream: str, host: StreamHost) -> None:
        self._group = group
        self._stream = stream
        self._account = account
        self._host = host
        self._config: StreamConfig | None = None
        self._readers: dict[str, _Reader] = {}
        self._number = 0

    def close(self) -> None:
        """This replica does not lead any more."""
        if self._readers:
            self._host.watch_origins(self._group, ())
        self._readers = {}
        self._config = None

    def is_behind(self, config: StreamConfig) -> bool:
        """Is another configuration in force than the one that is followed?"""
        return config is not self._config

    def follow(self, config: StreamConfig) -> None:
        """The configuration in force."""
        if not self.is_behind(config):
            return
        self._config = config
        origins = config.origins
        self._readers = {
            key: found
            if (found := self._readers.get(key)) and found.origin == origin
            else _Reader(key, origin)
            for key, origin in origins.items()
        }
        self._watch()

    def _watch(self) -> None:
        self._host.watch_origins(
            self._group, [found.group for found in self._readers.values() if found.group]
        )

    # ---- asking -----------------------------------------------------------------------------------------------------

    def advance(self, admission: Admission, now_ms: int) -> None:
        """Ask where nothing is asked, and whoever leads the origin now where another one was asked."""
        for reader in self._readers.values():
            reader.note_whole(admission.end.state.last_seq)
            if reader.told is None:
                self._look_at(reader, admission, now_ms)

    def _look_at(self, reader: _Reader, admission: Admission, now_ms: int) -> None:
        found = self._host.origin_of(self._account, reader.origin)
        if found is None or isinstance(found, ApiError):
            if found is not None:
                reader.error = found
            elif self._host.map.is_fresh:
                reader.error = errors.error(errors.STREAM_NOT_FOUND)
            reader.is_asked, reader.again_ms = False, now_ms + MISSING_RETRY_MS
            return
        if found.group != reader.group:
            reader.group, reader.is_asked, reader.again_ms = found.group, False, now_ms
            reader.told_stream = name_for(self._account, self._stream, found.account)
            is_mirror = reader.key == MIRROR_KEY
            token = origin_token(base_of(found.group))
            reader.rewrite = SourceRewrite(reader.origin, token, is_mirror=is_mirror)
            self._watch()
        leader = self._host.leader_of(reader.group)
        if reader.is_asked and leader == reader.node and now_ms < reader.again_ms:
            return
        if leader is None:
            reader.is_asked = False
            if now_ms >= reader.again_ms:
                reader.again_ms = now_ms + MISSING_RETRY_MS
                self._host.who_leads(reader.group)
        elif leader != reader.node or now_ms >= reader.again_ms:
            self._ask(reader, admission, leader, now_ms)

    def _ask(self, reader: _Reader, admission: Admission, leader: str, now_ms: int) -> None:
        position = admission.end.positions.get(reader.key)
        origin = reader.origin
        if position != reader.asked_with:
            reader.asked_with, reader.scanned = position, -1
        if position is not None and (position.origin == base_of(reader.group) or reader.key == MIRROR_KEY):
            from_seq = max(position.up_to, reader.scanned) + 1
        else:
            from_seq = reader.scanned + 1  # 0: where the configuration says.
        self._number += 1
        reader.number, reader.node = self._number, leader
        ask = OriginAsk(
            reader.group,
            self._group,
            reader.key,
            reader.number,
            from_seq,
            origin.opt_start_seq,
            origin.opt_start_time_ns,
            origin.filters,
            reader.told_stream,
            self._taken(reader, admission),
        )
        reader.is_asked = self._host.ask_origin(leader, ask)
        reader.again_ms = now_ms + (ASK_AGAIN_MS if reader.is_asked else MISSING_RETRY_MS)

    def _taken(self, reader: _Reader, admission: Admission) -> int:
        """What is committed here, and the origin need not keep any longer."""
        position = admission.end.state.origins.get(reader.key)
        return position.up_to if position is not None and position.origin == base_of(reader.group) else 0

    def on_origin_told(self, told: OriginTold, now_ms: int) -> None:
        """An answer; one to an ask that another one followed is dropped."""
        reader = self._readers.get(told.key)
        if reader is None or told.number != reader.number or not reader.is_asked:
            return
        reader.is_asked = False
        reader.heard_ms = now_ms
        reader.lag = max(0, told.last_seq - told.up_to)
        reader.told_seq = told.seqs[-1] if told.seqs else reader.told_seq
        if not reader.lag and not told.refusal and reader.whole_told_ms < 0:
            reader.whole_seq, reader.whole_told_ms = reader.told_seq, now_ms
        if told.refusal:
            reader.error = errors.detailed(10100, told.refusal)
            reader.again_ms = now_ms + ASK_AGAIN_MS
            reader.is_asked = True  # In a while again, and not before.
            return
        behind = reader.asked_with is not None and told.last_seq < reader.asked_with.up_to
        reader.error = (
            errors.error(10049, f"the origin ends at {told.last_seq}, before what was taken of it")
            if behind and reader.asked_with is not None and reader.asked_with.origin == base_of(reader.group)
            else None
        )
        reader.told, reader.again_ms = told, now_ms

    # ---- taking -----------------------------------------------------------------------------------------------------

    def put(self, turn: LeaderTurn) -> None:
        """Write down what was told."""
        self.follow(turn.stream.state.config)
        admission, now_ms = turn.admission, turn.now_ms
        for reader in self._readers.values():
            told = reader.told
            if told is None or now_ms < reader.again_ms:
                continue
            if admission.end.is_removing or admission.end.unapplied_bytes > UNCOMMITTED_BYTES_MAX:
                reader.again_ms = now_ms + HELD_MS
                continue
            reader.told, reader.again_ms = None, now_ms
            if admission.end.positions.get(reader.key) != reader.asked_with:
                continue  # Another answer was taken, or an entry was lost: it is asked for by what the log has now.
            writes = _MirrorWriter if reader.key == MIRROR_KEY else _SourceWriter
            writer = writes(reader, told, turn)
            is_whole = writer.write(turn.time_ns)
            if not is_whole:
                reader.again_ms = now_ms + HELD_MS
                reader.is_asked = True  # In a while again, and not before.
            elif admission.end.positions.get(reader.key) == reader.asked_with:
                reader.scanned = told.up_to
            if not writer.is_appended:
                return

    def whole_since_ms(self, state: StreamState) -> int:
        """Of a mirror: everything that the origin had then is applied here. -1: this leader has not heard so yet."""
        reader = self._readers.get(MIRROR_KEY)
        if reader is None:
            return -1
        reader.note_whole(state.last_seq)
        return reader.whole_ms

    # ---- showing ----------------------------------------------------------------------------------------------------

    def info(self, state: StreamState, now_ms: int) -> dict[str, Any]:
        """`mirror` or `sources` of STREAM.INFO."""
        found = [self._info_of(key, origin, state, now_ms) for key, origin in state.config.origins.items()]
        if state.config.mirror is not None:
            return {"mirror": found[0]}
        return {"sources": found} if found else {}

    def _info_of(self, key: str, origin: Origin, state: StreamState, now_ms: int) -> dict[str, Any]:
        reader = self._readers.get(key)
        data: dict[str, Any] = {"name": origin.name}
        if origin.external is not None:
            data["external"] = origin.external.to_json()
        data["lag"] = reader.lag if reader is not None else 0
        position = state.origins.get(key)
        if position is not None and position.last_seq and key != MIRROR_KEY:
            data["seq"] = position.last_seq
        is_heard = reader is not None and reader.heard_ms >= 0
        data["active"] = (now_ms - reader.heard_ms) * 1_000_000 if reader is not None and is_heard else -1
        if reader is not None and reader.error is not None:
            data["error"] = reader.error.to_json()
        return data | origin.filters_json()

    def deadline_ms(self) -> int | None:
        """When there is something to ask or to write."""
        return min((reader.again_ms for reader in self._readers.values()), default=None)


class _Writer:
    """Writes one answer down."""

    def __init__(
        self,
        reader: _Reader,
        told: OriginTold,
        turn: LeaderTurn,
    ) -> None:
        assert reader.rewrite is not None
        self.reader = reader
        self.on_origin_told = told
        self.turn = turn
        self.messages = turn.admission.messages
        self.end = turn.admission.end
        self.is_appended = True
        self.rewrite = reader.rewrite
        self.origin = base_of(reader.group)
        self.last_seq = reader.asked_with.last_seq if reader.asked_with is not None else 0

    def write(self, now_ns: int) -> bool:
        """False: not all of it could be taken now."""
        raise NotImplementedError

    def propose(self) -> bool:
        """Append what is put together, and begin anew."""
        self.is_appended = self.turn.next_entry()
        return self.is_appended

    def taken(self, up_to: int) -> None:
        """The entry that is being put together has everything up to there."""
        position = OriginPosition(self.origin, up_to, self.last_seq)
        self.turn.proposal.add(Section.ORIGIN_TAKEN, [encode_taken(self.reader.key, position)])
        self.end.taken(self.reader.key, position)

    def candidate(self, at: int) -> Candidate:
        subject, header, payload = (bytes(part) for part in self.on_origin_told.parts[3 * at : 3 * at + 3])
        seq = self.on_origin_told.seqs[at]
        return Candidate(
            self.rewrite.subject(subject, seq), self.rewrite.header(header, subject, seq), payload
        )

    def is_quiet(self) -> bool:
        """Did the position move on, without a message, so far that it has to be written down?"""
        before = self.reader.asked_with.up_to if self.reader.asked_with is not None else 0
        return self.on_origin_told.up_to - before >= QUIET_SEQS


def _is_held(found: Exceptional) -> bool:
    """Is it to be tried again, when somebody has made room, or has purged what is no counter?"""
    return found.verdict == Verdict.REFUSED and found.code in (STREAM_FULL, STREAM_SEALED, BROKEN)


class _SourceWriter(_Writer):
    """Messages get sequences of the stream's own."""

    def write(self, now_ns: int) -> bool:
        end, parts = self.end, list[bytes]()
        first_seq, up_to, is_whole = end.next_seq, self.on_origin_told.up_to, True
        for at, seq in enumerate(self.on_origin_told.seqs):
            message = self.candidate(at)
            found = self.messages.judge_taken(message, end.next_seq, now_ns)
            if found is not None and _is_held(found):
                up_to, is_whole = seq - 1, False
                break
            if found is None:
                triple = (message.subject, message.header, message.payload)
                end.note_own(triple)
                parts += triple
            if found is None or found.verdict == Verdict.DUPLICATE:
                self.last_seq = seq
        if parts:
            self.turn.proposal.count_from(first_seq, len(parts) // 3)
            self.turn.proposal.add(Section.OWN_MESSAGES, [encode_block(parts)])
        before = self.reader.asked_with.up_to if self.reader.asked_with is not None else 0
        if parts or (self.on_origin_told.seqs and up_to > before) or self.is_quiet():
            self.taken(up_to)
        if self.turn.proposal.is_full:
            self.propose()
        return is_whole


class _MirrorWriter(_Writer):
    """Messages keep their sequences: each stretch without a long gap is an entry."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._parts: list[bytes] = []
        self._times: list[int] = []
        self._first_seq = 0

    def write(self, now_ns: int) -> bool:
        up_to, is_whole = self.on_origin_told.up_to, True
        for at, seq in enumerate(self.on_origin_told.seqs):
            if seq < max(self.end.next_seq, self._next_seq if self._times else 0):
                continue  # The origin is another one, which has not come so far (or was recovered, SF-9).
            message = self.candidate(at)
            found = self.messages.judge_taken(message, seq, now_ns)
            if found is not None and _is_held(found):
                up_to, is_whole = seq - 1, False
                break
            if found is None and not self._add(seq, self.on_origin_told.times_ns[at], message):
                return True
        if not self._flush():
            return True
        position = self.end.positions.get(self.reader.key)
        moved = position is None or up_to > position.up_to
        is_empty = not self.end.state.messages and not self.reader.origin.filters and up_to > 0
        if moved and (is_empty or self.is_quiet()):
            self.taken(up_to)
        return is_whole

    @property
    def _next_seq(self) -> int:
        return self._first_seq + len(self._times)

    def _add(self, seq: int, time_ns: int, message: Candidate) -> bool:
        """False: an entry was not appended."""
        gap = seq - self._next_seq if self._times else 0
        if gap > PLACEHOLDERS_MAX:
            if not self._flush():
                return False
            gap = 0
        if not self._times:
            self._first_seq = seq
        self._parts += [b"", b"", b""] * gap
        self._times += [time_ns] * (gap + 1)
        self._parts += (message.subject, message.header, message.payload)
        if self.end.config.discard == "new":
            self.end.note_size(message.subject, message.header, message.payload, seq)
        return True

    def _flush(self) -> bool:
        """Append the stretch."""
        if not self._times:
            return True
        self.last_seq = self._next_seq - 1
        self.turn.proposal.count_from(self._first_seq, len(self._times))
        self.turn.proposal.add(Section.MIRRORED, encode_mirrored(self._times, self._parts))
        self.end.next_seq = self.last_seq + 1
        self.taken(self.last_seq)
        self._parts, self._times = [], []
        return self.propose()
