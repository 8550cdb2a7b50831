"""A stream's leader sends backups of its stream, chunk by chunk, at the pace of the receiver's
acknowledgements.

Only the piece that is being sent is in memory. The backup contains neither messages that are deleted while it
runs nor those that are stored meanwhile; consumers are as they were at its beginning
(`docs/adr/archive_format.md`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from supercluster.broker.archive.entries import END, Entry, packed
from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.api.requests import StreamSnapshotRequest
from supercluster.broker.jetstream.backup import archive_format
from supercluster.broker.jetstream.consumer.advisories import Advisories
from supercluster.broker.jetstream.encoding.timestamps import format_time
from supercluster.broker.jetstream.links.frames import Request
from supercluster.broker.jetstream.publish.held_stream import HeldStream
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.state.message_source import MessageSource
from supercluster.broker.raft.errors import DiskError

CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MIN, CHUNK_BYTES_MAX = 128 * 1024, 1024, 1024 * 1024
WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MIN, WINDOW_BYTES_MAX = 8 * 1024 * 1024, 1024, 32 * 1024 * 1024
# For so long nobody need listen at first.
INTEREST_WAIT_MS = 2000
# For so long a receiver may say nothing while it has a full window.
FLOW_WAIT_MS = 5000
# How often it is looked whether anybody listens.
LOOK_MS = 250
# A stream sends so many backups at a time.
SNAPSHOTS_MAX = 8
# As much is sent in one turn, of all backups of the stream.
TURN_BYTES_MAX = 1024 * 1024
# Messages are read in stretches.
READ_MESSAGES, READ_BYTES = 512, 256 * 1024

_NO_INTEREST, _NO_FLOW, _ENDED = "408 No Interest", "408 No Flow Response", "204"


class _Sending:
    """One backup on its way."""

    def __init__(
        self, host: StreamHost, request: Request, call: StreamSnapshotRequest, pieces: Iterator[bytes]
    ) -> None:
        self.account = request.info.account
        self.subject = call.deliver_subject.encode()
        self.client = client_of(request)
        self.token = host.new_token()
        self.chunk_bytes = min(max(call.chunk_size or CHUNK_BYTES_DEFAULT, CHUNK_BYTES_MIN), CHUNK_BYTES_MAX)
        window = min(max(call.window_size or WINDOW_BYTES_DEFAULT, WINDOW_BYTES_MIN), WINDOW_BYTES_MAX)
        self.slots = max(window, self.chunk_bytes) // self.chunk_bytes
        """How many chunks may be sent now."""
        self.begun_ns = host.clock.now_ns()
        self.begun_ms = self.sent_ms = self.looked_ms = host.clock.monotonic_ms()
        self.was_heard = False
        """Did anybody listen yet?"""
        self.sent = 0
        self.left = bytearray()
        self.pieces = pieces
        self.is_read = False
        """Is all that there is in `left`, or sent?"""

    def fill(self) -> None:
        """Have a whole chunk, or all that is left."""
        while not self.is_read and len(self.left) < self.chunk_bytes:
            piece = next(self.pieces, None)
            if piece is None:
                self.is_read = True
            else:
                self.left += piece


def client_of(request: Request) -> dict[str, Any]:
    """Who asked, as advisories say it."""
    return {"acc": request.info.account} | ({"user": request.info.user} if request.info.user else {})


def entries_of(source: MessageSource, head: list[bytes], last_seq: int) -> Iterator[bytes]:
    """What is in the archive, encoded: `head`, and messages up to that sequence, which are read when their turn comes."""
    yield from head
    head.clear()
    seq = 0
    while True:
        batch = source.read(seq, READ_MESSAGES, READ_BYTES)
        for at, found in enumerate(batch.seqs):
            if found > last_seq:
                break
            seq = found + 1
            subject, header = batch.subjects[at], batch.headers[at]
            yield Entry(subject, batch.times[at], found, header, bytes(batch.payloads[at])).encode()
        if not batch.seqs or batch.seqs[-1] >= last_seq:
            break
    yield END.encode()


class SnapshotSender:
    """See the module. One per replica; does something while it leads."""

    def __init__(self, group: str, stream: HeldStream, host: StreamHost, advisories: Advisories) -> None:
        self._group = group
        self._stream = stream
        self._host = host
        self._advisories = advisories
        self._sending: dict[str, _Sending] = {}

    def begin(
        self,
        request: Request,
        call: StreamSnapshotRequest,
        state: dict[str, Any],
        respond: Callable[[bytes], None],
        answer: bytes,
    ) -> None:
        """Answer, and send from the next turn on. `state` is the stream's, as STREAM.INFO has it.

        Raises:
            ApiError: there are too many under way.
        """
        if len(self._sending) >= SNAPSHOTS_MAX:
            raise errors.detailed(
                errors.INSUFFICIENT_RESOURCES,
                f"{len(self._sending)} snapshots of the stream are under way, at most {SNAPSHOTS_MAX} are sent at a time",
            )
        now_ns = self._host.clock.now_ns()
        consumers = [] if call.no_consumers else list(self._stream.state.consumers.values())
        last_seq = self._stream.state.last_seq
        head = [archive_format.state_entry({**state, "consumer_count": len(consumers)}, now_ns)]
        head += [archive_format.consumer_entry(found, last_seq, now_ns) for found in consumers]
        sending = _Sending(self._host, request, call, packed(entries_of(self._stream.source, head, last_seq)))
        self._sending[sending.token] = sending
        respond(answer)
        self._advisories.of_backup("snapshot_create", {"state": state, "client": sending.client})
        self._host.touch_next(self._group)

    def take_acks(self, acks: list[tuple[bytes, bytes, bytes]]) -> list[tuple[bytes, bytes, bytes]]:
        """Acknowledgements of chunks let others go; the rest is given back."""
        if not self._sending:
            return acks
        left = []
        for ack in acks:
            if not ack[0].startswith(archive_format.ACK_PREFIX):
                left.append(ack)
                continue
            sending = self._sending.get(archive_format.token_of(ack[0]))
            if sending is not None:
                sending.slots += 1
        return left

    def serve(self, now_ms: int) -> None:
        """Send what may be sent."""
        if not self._sending:
            return
        left_bytes = TURN_BYTES_MAX
        for sending in list(self._sending.values()):
            if not self._is_heard(sending, now_ms):
                continue
            try:
                left_bytes = self._send(sending, left_bytes, now_ms)
            except DiskError as error:
                self._end(sending, f"500 {error}", str(error))
            if left_bytes <= 0:
                self._host.touch_next(self._group)
                return

    def _is_heard(self, sending: _Sending, now_ms: int) -> bool:
        if now_ms - sending.looked_ms < LOOK_MS and sending.was_heard:
            return True
        sending.looked_ms = now_ms
        is_heard = self._host.network.has_interest(sending.account, sending.subject)
        if is_heard:
            sending.was_heard = True
        elif sending.was_heard or now_ms - sending.begun_ms >= INTEREST_WAIT_MS:
            self._end(sending, _NO_INTEREST, "no interest")
        return is_heard

    def _send(self, sending: _Sending, left_bytes: int, now_ms: int) -> int:
        """Returns how much may still be sent in this turn."""
        publish, stream = self._host.network.publish, self._stream.assignment.name
        while sending.slots and left_bytes > 0:
            sending.fill()
            if len(sending.left) < sending.chunk_bytes:
                if sending.left:
                    publish(sending.account, sending.subject, b"", b"", bytes(sending.left))
                self._end(sending, _ENDED if sending.sent else "", "")
                return left_bytes - len(sending.left)
            chunk = bytes(sending.left[: sending.chunk_bytes])
            del sending.left[: sending.chunk_bytes]
            sending.sent += 1
            sending.slots -= 1
            sending.sent_ms = now_ms
            left_bytes -= len(chunk)
            reply = (
                f"{archive_format.ACK_PREFIX.decode()}{stream}.{sending.token}.{len(chunk)}.{sending.sent}"
            )
            publish(sending.account, sending.subject, reply.encode(), b"", chunk)
        if not sending.slots and now_ms - sending.sent_ms >= FLOW_WAIT_MS:
            self._end(sending, _NO_FLOW, "no flow response")
        return left_bytes

    def _end(self, sending: _Sending, status: str, error: str) -> None:
        """An empty message says that nothing follows, and its status why."""
        del self._sending[sending.token]
        host = self._host
        header = f"NATS/1.0 {status}\r\n\r\n".encode() if status else b""
        host.network.publish(sending.account, sending.subject, b"", header, b"")
        told: dict[str, Any] = {
            "start": format_time(sending.begun_ns),
            "end": format_time(host.clock.now_ns()),
        }
        told |= {"client": sending.client} | ({"error": error} if error else {})
        self._advisories.of_backup("snapshot_complete", told)

    def stop(self, why: str) -> None:
        """This replica does not lead any more: who receives a backup begins anew."""
        for sending in list(self._sending.values()):
            self._end(sending, f"500 {why}", why)

    def deadline_ms(self) -> int | None:
        """When it is to be looked whether somebody listens, or has had enough time."""
        return min((sending.looked_ms + LOOK_MS for sending in self._sending.values()), default=None)
