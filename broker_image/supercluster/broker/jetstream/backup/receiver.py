"""A stream's leader receives a backup, chunk by chunk, while its stream is hidden (`meta/restoring.py`).

When the backup is complete the stream is shown; otherwise it is removed. One leader has to receive all of it:
the next leader does not know how much was read, and ends the restore. The leader reports every end to the
meta group, which shows the stream or removes it, so nothing of an incomplete restore remains
(`docs/adr/archive_format.md`).
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from supercluster.broker.archive.s2 import ArchiveError
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api import answers
from supercluster.broker.jetstream.backup import archive_format
from supercluster.broker.jetstream.backup.reader import RestoreReader
from supercluster.broker.jetstream.backup.sender import client_of
from supercluster.broker.jetstream.config.sources import MIRROR_KEY
from supercluster.broker.jetstream.consumer.advisories import Advisories
from supercluster.broker.jetstream.encoding.codec import u64
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.meta.restoring import Restoring
from supercluster.broker.jetstream.publish.admission import Admission
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.publish.proposal import Append, Proposal
from supercluster.broker.jetstream.replica.lineage import base_of
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.source_positions import OriginPosition, encode_taken

# A sender that says nothing for so long has gone.
IDLE_MS = 5000
# Nobody began: who was to ask this leader has gone, or an earlier leader had begun.
BEGIN_WAIT_MS = 5000
# What went wrong is told to chunks that are on their way, for so long; the name is free for another restore after that.
TELL_MS = 1000
# The meta group is asked again after this.
ASK_AGAIN_MS = 500
# Consumers that are written in one turn; what one waits for counts, too.
CONSUMERS_OF_A_TURN = 64
PENDING_PER_CONSUMER = 256
# As for publishes: appended and not applied.
UNCOMMITTED_BYTES_MAX = 16 * 1024 * 1024
# Chunks that wait while the log is behind; who sends more without waiting for answers is refused.
WAITING_BYTES_MAX = 64 * 1024 * 1024
# Unpacked in one turn, about: that takes time, and goes into the log.
TURN_BYTES_MAX = 1024 * 1024

Respond = Callable[[bytes], None]
ANSWER_KIND = "stream_create"


class _Phase(Enum):
    TAKING = auto()
    """Chunks are read as they come."""
    STORING = auto()
    """All was read: what is written is still to be committed."""
    CLOSING = auto()
    """Consumers and the last sequence are written, and to be committed."""
    SHOWING = auto()
    """The meta group is to show the stream."""
    FAILED = auto()
    """It was refused; who still sends is told so."""
    OVER = auto()


@dataclass(frozen=True, slots=True)
class _Chunk:
    data: bytes
    has_reply: bool
    respond: Respond


@dataclass(slots=True)
class _Restore:
    """The one that is under way."""

    restoring: Restoring
    token: str
    client: dict[str, Any]
    begun_ns: int
    heard_ms: int
    reader: RestoreReader
    phase: _Phase = _Phase.TAKING
    chunks: deque[_Chunk] = field(default_factory=deque)
    waiting_bytes: int = 0
    total_bytes: int = 0
    numbers: dict[str, int] = field(default_factory=dict)
    """The last chunk's number, by the broker's process where it came in."""
    end: Respond | None = None
    """Answers the empty chunk behind the last."""
    error: ApiError | None = None
    ask_ms: int = 0
    """When the meta group is asked (again)."""
    is_asked: bool = False


class RestoreReceiver:
    """See the module. One per replica; does something while it leads a stream that is not whole."""

    def __init__(
        self,
        replica: Replica,
        stream: HeldStream,
        host: StreamHost,
        advisories: Advisories,
        when_configured: Callable[[int, Callable[[], None]], None],
        created_answer: Callable[[], bytes],
    ) -> None:
        """`when_configured` calls what it is given when that version of the configuration is in force."""
        self._replica = replica
        self._stream = stream
        self._host = host
        self._advisories = advisories
        self._when_configured = when_configured
        self._created_answer = created_answer
        self._now: _Restore | None = None
        self._began_ms = 0

    def start(self, now_ms: int) -> None:
        """This replica leads from now on."""
        self._began_ms = now_ms

    def stop(self) -> None:
        """It does not any more: who asks hears it from the next leader."""
        self._now = None

    @property
    def _restoring(self) -> Restoring | None:
        return self._stream.assignment.restoring

    # ---- what comes in ----------------------------------------------------------------------------------------------

    def begin(self, request: Request, respond: Respond, admission: Admission | None) -> None:
        """The restore's first request has come: it is told where chunks go."""
        restoring, now = self._restoring, self._now
        if restoring is None:
            raise errors.error(errors.RESTORE_NAME_IN_USE)
        if now is None:
            if admission is None or admission.end.next_seq > 1:
                raise self._deposed()
            clock = self._host.clock
            now = self._now = _Restore(
                restoring,
                self._host.new_token(),
                client_of(request),
                clock.now_ns(),
                clock.monotonic_ms(),
                self._reader(restoring),
            )
            self._advisories.of_backup("restore_create", {"client": now.client})
        chunks_to = f"{archive_format.RESTORE_PREFIX.decode()}{self._stream.assignment.name}.{now.token}"
        respond(answers.answer("stream_restore", {"deliver_subject": chunks_to}))

    def _reader(self, restoring: Restoring) -> RestoreReader:
        limits = self._host.map.account_limits(self._stream.assignment.account)
        return RestoreReader(restoring.config, limits)

    def _deposed(self) -> ApiError:
        return errors.error(
            errors.RESTORE_FAILED,
            f"another broker took stream {self._stream.assignment.name} in, and leads it no more: begin again",
        )

    def chunk(self, request: Request, respond: Respond) -> None:
        """A chunk; an empty one says that there are no more."""
        now, now_ms = self._now, self._host.clock.monotonic_ms()
        if self._restoring is None and not request.payload:
            # The stream is whole, and somebody asks again, since its leader fell before it said so.
            self._when_configured(self._stream.assignment.version, lambda: respond(self._created_answer()))
            return
        if self._restoring is None or now is None or archive_format.token_of(request.subject) != now.token:
            respond(_refusal(self._deposed()))
            return
        now.heard_ms = now_ms
        if request.number <= now.numbers.get(request.origin, 0):
            self._fail(now, errors.error(errors.RESTORE_FAILED, "chunks came out of order: begin again"))
        now.numbers[request.origin] = request.number
        data = bytes(request.payload)
        chunk = _Chunk(data, bool(request.reply), respond)
        if now.error is not None:
            self._notify(now, chunk)
            return
        if now.phase is not _Phase.TAKING:
            respond(_refusal(errors.error(errors.RESTORE_FAILED, "a chunk came behind the last one")))
            return
        now.chunks.append(chunk)
        now.waiting_bytes += len(data)
        if now.waiting_bytes > WAITING_BYTES_MAX:
            why = f"more than {WAITING_BYTES_MAX} bytes were sent without waiting for answers"
            self._fail(now, errors.error(errors.RESTORE_FAILED, why))

    def _notify(self, now: _Restore, chunk: _Chunk) -> None:
        """What went wrong; who says that it has sent all is told when nothing of it is left."""
        assert now.error is not None
        if chunk.data or now.phase is _Phase.OVER:
            chunk.respond(_refusal(now.error))
        else:
            now.end, now.ask_ms = chunk.respond, 0

    # ---- what is written --------------------------------------------------------------------------------------------

    def put(self, turn: LeaderTurn) -> None:
        """Entries of their own, while the stream is hidden."""
        if not turn.is_hidden:
            return
        admission, now, now_ms = turn.admission, self._now, turn.now_ms
        if now is None:
            if self._restoring is not None and now_ms >= self._began_ms + BEGIN_WAIT_MS:
                self._take_over(now_ms)
            return
        if now.phase is _Phase.TAKING:
            self._read(now, admission, turn.append, now_ms)
        if now.phase is _Phase.STORING and not admission.end.unapplied_bytes:
            self._close(now, admission, turn.append)
        if now.phase in (_Phase.SHOWING, _Phase.FAILED) and not now.is_asked and now_ms >= now.ask_ms:
            self._ask(now)

    def _take_over(self, now_ms: int) -> None:
        """Nobody sends to this leader: the restore ends."""
        restoring, clock = self._restoring, self._host.clock
        assert restoring is not None
        self._now = _Restore(restoring, "", {}, clock.now_ns(), now_ms, self._reader(restoring))
        self._fail(self._now, self._deposed())
        self._now.ask_ms = 0

    def _read(self, now: _Restore, admission: Admission, append: Append, now_ms: int) -> None:
        left = TURN_BYTES_MAX
        try:
            while now.chunks and left > 0 and not _is_behind(admission):
                before = now.reader.taken_bytes
                self._read_chunk(now, now.chunks[0], admission, append, left)
                left -= max(1, now.reader.taken_bytes - before)
                if now.phase is not _Phase.TAKING:
                    return
        except ArchiveError as found:
            self._fail(now, errors.error(errors.RESTORE_FAILED, found))
        except ApiError as refused:
            self._fail(now, errors.error(errors.RESTORE_FAILED, refused.description))
        if now.chunks:
            # When it is behind, `applied` says that it goes on: turns in between would find nothing to do.
            if not _is_behind(admission):
                self._host.touch_next(self._replica.id)
        elif now.phase is _Phase.TAKING and now_ms - now.heard_ms >= IDLE_MS:
            stream = self._stream.assignment.name
            self._fail(now, errors.error(errors.RESTORE_FAILED, f"restore of stream {stream} is stalled"))
            now.ask_ms = 0

    def _read_chunk(
        self,
        now: _Restore,
        chunk: _Chunk,
        admission: Admission,
        append: Append,
        left: int,
    ) -> None:
        """Read the chunk, or about so much of what it unpacks to."""
        if not chunk.has_reply:
            raise ArchiveError("each chunk requires a reply subject")
        if chunk.data:
            if now.reader.is_read:
                now.total_bytes += len(chunk.data)
                now.reader.feed(chunk.data)
            is_taken = now.reader.read(admission, append, left)
        else:
            is_taken = now.reader.end(admission, append)
        if not is_taken:
            raise errors.error(self._full)
        if not now.reader.is_read:
            return
        now.chunks.popleft()
        now.waiting_bytes -= len(chunk.data)
        # A sender that waits has time from the answer on.
        now.heard_ms = self._host.clock.monotonic_ms()
        if chunk.data:
            chunk.respond(b"")
        else:
            now.end, now.phase = chunk.respond, _Phase.STORING

    @property
    def _full(self) -> int:
        is_file = self._stream.assignment.config.storage == "file"
        return errors.STORAGE_RESOURCES if is_file else errors.MEMORY_RESOURCES

    def _close(self, now: _Restore, admission: Admission, append: Append) -> None:
        """All messages are there: what they belong to follows, the last entry ends it."""
        told, state = now.reader.told, self._stream.state
        assert told is not None
        proposal = Proposal()
        left = CONSUMERS_OF_A_TURN
        while now.reader.consumers and left > 0:
            consumer = now.reader.consumers.popleft()
            left -= 1 + len(consumer.pending) // PENDING_PER_CONSUMER
            found = consumer.state(told.last_seq, self._replica.leader_time_ns())
            found.drop_gone([seq for seq in found.pending if not state.has(seq)])
            proposal.add(Section.CONSUMER_RESTORED, [found.snapshot()])
            if proposal.is_full:
                if not append(proposal):
                    self._fail(now, errors.error(self._full))
                    return
                proposal = Proposal()
        if now.reader.consumers:
            # `applied` says that it goes on.
            if not append(proposal):
                self._fail(now, errors.error(self._full))
            return
        now.phase = _Phase.CLOSING
        for key, position in self._positions(now).items():
            proposal.add(Section.ORIGIN_TAKEN, [encode_taken(key, position)])
            admission.end.taken(key, position)
        last_seq = max(told.last_seq, told.first_seq - 1)
        proposal.add(Section.RESTORED, [u64(last_seq)])
        admission.end.next_seq = max(admission.end.next_seq, last_seq + 1)
        proposal.noted.append(lambda result: self._closed(now, result))
        if not append(proposal):
            self._fail(now, errors.error(self._full))

    def _positions(self, now: _Restore) -> dict[str, OriginPosition]:
        """Where the stream goes on to take messages of its origins, whose groups may be others now."""
        found: dict[str, OriginPosition] = {}
        told = now.reader.told
        assert told is not None
        for key, origin in now.restoring.config.origins.items():
            up_to = told.last_seq if key == MIRROR_KEY else now.reader.sourced.get(key, 0)
            there = self._host.origin_of(self._stream.assignment.account, origin)
            is_there = there is not None and not isinstance(there, ApiError)
            if up_to and (is_there or key == MIRROR_KEY):
                group = "" if there is None or isinstance(there, ApiError) else base_of(there.group)
                found[key] = OriginPosition(group, up_to, up_to)
        return found

    def _closed(self, now: _Restore, result: int | None) -> None:
        if result is not None and now.phase is _Phase.CLOSING:
            now.phase, now.ask_ms = _Phase.SHOWING, 0
            self._host.touch_next(self._replica.id)

    def applied(self) -> None:
        """Something was applied: perhaps what is waited for."""
        if self._now is not None and (self._now.phase is _Phase.STORING or self._now.chunks):
            self._host.touch_next(self._replica.id)

    # ---- how it ends ------------------------------------------------------------------------------------------------

    def _fail(self, now: _Restore, why: ApiError) -> None:
        if now.error is not None:
            return
        if why.err_code != errors.RESTORE_FAILED:
            why = errors.error(errors.RESTORE_FAILED, why.description)
        now.error, now.phase = why, _Phase.FAILED
        now.ask_ms = self._host.clock.monotonic_ms() + TELL_MS
        self._tell_end(now)
        chunks = list(now.chunks)
        if now.end is not None:
            chunks.append(_Chunk(b"", True, now.end))
        now.chunks.clear()
        now.waiting_bytes = 0
        for chunk in chunks:
            self._notify(now, chunk)
        self._host.touch(self._replica.id)

    def _tell_end(self, now: _Restore) -> None:
        host = self._host
        fields = {
            "start": format_time(now.begun_ns),
            "end": format_time(host.clock.now_ns()),
            "bytes": now.total_bytes,
            "client": now.client,
        }
        self._advisories.of_backup("restore_complete", fields)
        if now.error is not None:
            stream = self._stream.assignment.name
            host.event(self._replica.id, "RestoreFailed", f"stream {stream}: {now.error.description}")

    def _ask(self, now: _Restore) -> None:
        """Have the meta group show the stream, or remove it; again until it says that it did."""
        found = self._stream.assignment
        verb = "restored" if now.phase is _Phase.SHOWING else "abandon"
        told = {"verb": verb, "account": found.account, "name": found.name, "group": found.group}
        now.is_asked = True
        self._host.end_restore({**told, "id": now.restoring.id}, lambda answer: self._asked(now, answer))

    def _asked(self, now: _Restore, answer: bytes | None) -> None:
        now.is_asked = False
        now.ask_ms = self._host.clock.monotonic_ms() + ASK_AGAIN_MS
        told = json.loads(answer) if answer is not None else {}
        self._host.touch_next(self._replica.id)
        if "version" not in told and told.get("err_code") != errors.STREAM_NOT_FOUND:
            return  # Nobody could say: later.
        is_shown, now.phase = now.phase is _Phase.SHOWING, _Phase.OVER
        end, now.end = now.end, None
        if is_shown and "version" not in told:
            now.error = errors.error(errors.RESTORE_FAILED, "the stream was deleted, or is restored anew")
        if is_shown and self._now is now:
            self._tell_end(now)
        if end is None:
            return
        if now.error is not None:
            end(_refusal(now.error))
        else:
            self._when_configured(int(told["version"]), lambda: end(self._created_answer()))

    def deadline_ms(self) -> int | None:
        """When a sender has had enough time, or the meta group is to be asked."""
        now = self._now
        if now is None:
            return self._began_ms + BEGIN_WAIT_MS if self._restoring is not None else None
        if now.phase is _Phase.TAKING:
            # While chunks wait it is this broker that others wait for.
            return now.heard_ms + IDLE_MS if not now.chunks else None
        if now.phase in (_Phase.SHOWING, _Phase.FAILED) and not now.is_asked:
            return now.ask_ms
        return None


def _is_behind(admission: Admission) -> bool:
    """Is so much appended and not applied that no more is read?"""
    return admission.end.unapplied_bytes > UNCOMMITTED_BYTES_MAX


def _refusal(error: ApiError) -> bytes:
    return answers.error_answer(ANSWER_KIND, error)
