"""API requests at the client's broker: the group that answers each, and retries while that group has no
leader.

A request goes to the leader of the meta group or of its stream. The answer comes back to this broker and is
published from here, so that the client's own subscription is sure to be known. If the leader changes, the
request is sent to the next one until its time-out; then the client gets NATS's error 10008. A leader may have
carried out a request before it failed, so the outcome of the retry is interpreted: "not found" then means
that the deletion of a message succeeded.

**Once or twice.** One leader carries out a request once, however often it arrives (`frontend/answer_cache.py`).
The next leader does not know what the one before did. So a request goes to it when the broker that has it has
said that it does not lead, or is lost, or was silent for a second. A lost leader may have carried it out. So may
one that is deposed and lives: it says UNDECIDED of what stands in its log uncommitted, which the next leader may
commit. Other clients may have done something since:

- Reads change nothing. A creation finds itself there, and gets the same answer. A sequence is never given
  twice, so a message is deleted once.
- A pull is served anew. Messages that the lost leader had committed are not among those, so no message is lost
  or repeated; the client may get more of them than it asked for.
- A purge would also take what was stored and confirmed since, and a deletion what was created since under the
  same name. A new configuration would take back a later one, and with a limit of before, messages. These are
  not sent again: the client gets 10008 at once, as nobody knows what became of them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count, islice

from supercluster.broker.jetstream.api.answers import direct_refusal, pull_refusal
from supercluster.broker.jetstream.backup.archive_format import RESTORE_PREFIX
from supercluster.broker.jetstream.consumer.pull import SERVER_SHUTDOWN, status
from supercluster.broker.jetstream.links.frames import (
    Frame,
    Request,
    ResponseStatus,
    encode_request,
    encode_texts,
)
from supercluster.broker.jetstream.publish.windows import Post
from supercluster.broker.jetstream.replica.lineage import is_same_stream
from supercluster.broker.migration.worlds import world_of
from supercluster.broker.ports import ClientInfo, Network

REQUEST_WAIT_MS = 5000
# A request that got no answer is repeated after this: frames are lost with links.
REQUEST_RETRY_MS = 1000
ASK_LEADER_MS = 200
RESENT_MAX = 128
"""Requests that one turn sends to leaders that began to serve; the others go behind them, in the order in which they came."""
REQUESTS_MAX = 16384
# Of their payloads: most have none, and some are blocks of rows, or chunks of a backup.
PENDING_BYTES_MAX = 256 * 1024 * 1024
PULL_PREFIX = b"$JS.API.CONSUMER.MSG.NEXT."
REMOVING = tuple(
    b"$JS.API." + call
    for call in (b"STREAM.PURGE.", b"STREAM.DELETE.", b"CONSUMER.DELETE.", b"CONSUMER.RESET.")
)
UPDATE_PREFIX = b"$JS.API.STREAM.UPDATE."
"""These undo what others did, where they are carried out once more."""
DIRECT_PREFIX = b"$JS.API.DIRECT.GET."

_U64 = struct.Struct("<Q")


@dataclass(slots=True)
class Pending:
    """A request that is not answered."""

    request: Request
    give_up_ms: int
    next_try_ms: int
    on_answer: Callable[[bytes | None], None] | None = None
    """For requests that this broker makes by itself: gets the answer, None when there was none in time."""
    sent: bool = False
    """A leader has it and did not say anything yet."""
    sent_to: str = ""
    is_late: bool = False
    """It was tried before."""
    perhaps_done: bool = False
    """An earlier leader may have carried it out."""


class PendingRequests:
    """The requests of this broker's clients that are under way."""

    def __init__(
        self,
        network: Network,
        post: Post,
        leader_of: Callable[[str], str | None],
        peers: Callable[[str], list[str]],
        unavailable: Callable[[Request], bytes],
        done_before: Callable[[bytes, bytes], bytes] = lambda subject, answer: answer,
        *,
        origin: str,
        node: str = "",
        first_number: int = 1,
        answered: Callable[[ClientInfo, bytes, bytes, bytes], None] = lambda info, subject, payload, answer: (
            None
        ),
        choose_again: Callable[[Request], str] = lambda request: request.group,
        before: Callable[[str, int], None] = lambda group, now_ms: None,
    ) -> None:
        """`done_before(subject, answer)` words the answer of a request that an earlier leader may have carried out.
        `answered(info, subject, payload, answer)` is told what a client of this broker is answered.
        `peers(group)` are linked brokers that may know who leads it. `choose_again(request)` is the group to ask the next time.
        `before(group, now_ms)` sends the group's leader what came before a request that shows its effects.
        `origin` is the incarnation of this broker's volume, and `first_number` above all numbers that earlier
        processes on it used."""
        self._network = network
        self._post = post
        self._leader_of = leader_of
        self._peers = peers
        self._unavailable = unavailable
        self._done_before = done_before
        self._answered = answered
        self._choose_again = choose_again
        self._before = before
        self._origin = origin
        self._node = node
        self._numbers = count(first_number)
        self._pending: dict[int, Pending] = {}
        self._bytes = 0
        """Of their payloads."""
        self._resent: dict[int, None] = {}
        """Numbers of requests whose leader serves since, and that were not sent to it yet."""

    def __len__(self) -> int:
        return len(self._pending)

    def send(
        self,
        group: str,
        info: ClientInfo,
        subject: bytes,
        reply: bytes,
        header: bytes,
        payload: bytes,
        now_ms: int,
        on_answer: Callable[[bytes | None], None] | None = None,
        wait_ms: int = REQUEST_WAIT_MS,
    ) -> None:
        """Take a request for the leader of `group`."""
        request = Request(self._origin, next(self._numbers), group, info, subject, reply, header, payload)
        pending = Pending(request, now_ms + wait_ms, now_ms, on_answer)
        if len(self._pending) >= REQUESTS_MAX or self._bytes + len(payload) > PENDING_BYTES_MAX:
            self._fail(pending)
            return
        self._keep(pending)
        if self._resent:
            self._resent[request.number] = None  # It overtakes none.
        else:
            self._try(pending, now_ms)

    def _keep(self, pending: Pending) -> None:
        self._pending[pending.request.number] = pending
        self._bytes += len(pending.request.payload)

    def _remove(self, number: int) -> None:
        self._bytes -= len(self._pending.pop(number).request.payload)

    def _try(self, pending: Pending, now_ms: int) -> None:
        if pending.is_late and not pending.request.header:
            # One that was sent on to the origin of a mirror stays there.
            pending.request = replace(pending.request, group=self._choose_again(pending.request))
        pending.is_late = True
        if not pending.request.subject.startswith(PULL_PREFIX):
            self._before(pending.request.group, now_ms)
        leader = self._leader_of(pending.request.group)
        if leader is not None and pending.sent and leader != pending.sent_to and self._gave_up(pending):
            return
        if leader is not None and self._post(
            leader, Frame.REQUEST, encode_request(_as_told(pending.request, leader))
        ):
            pending.next_try_ms = now_ms + REQUEST_RETRY_MS
            pending.perhaps_done |= pending.sent
            pending.sent, pending.sent_to = True, leader
            return
        pending.next_try_ms = now_ms + ASK_LEADER_MS
        for peer in self._peers(pending.request.group):
            self._post(peer, Frame.WHO_LEADS, encode_texts(pending.request.group))

    def _gave_up(self, pending: Pending) -> bool:
        """A leader that is lost or deposed may have carried it out: what must not happen twice fails."""
        request = pending.request
        # An update that the map has (CONTINUE) is only answered by the stream's leader.
        is_update = request.subject.startswith(UPDATE_PREFIX) and not request.header
        if not (is_update or request.subject.startswith(REMOVING)):
            return False
        self._remove(request.number)
        self._fail(pending)
        return True

    def link_down(self, node: str) -> None:
        """The broker is lost, or the link to it: it may forget what it was asked (`frontend/answer_cache.py`)."""
        for pending in list(self._pending.values()):
            if pending.sent and pending.sent_to == node:
                self._gave_up(pending)

    def response(
        self, number: int, status: ResponseStatus, payload: bytes, now_ms: int, node: str = ""
    ) -> None:
        """An answer, or word of where to ask, of a broker."""
        pending = self._pending.get(number)
        if pending is None:
            return
        if status is ResponseStatus.UNDECIDED and self._gave_up(pending):
            return
        if status in (ResponseStatus.NOT_LEADER, ResponseStatus.UNDECIDED):
            pending.sent = False
            pending.perhaps_done |= status is ResponseStatus.UNDECIDED
            pending.next_try_ms = now_ms + ASK_LEADER_MS
            if node and self._leader_of(pending.request.group) not in (None, node):
                self._try(pending, now_ms)  # The next leader said so in the meantime.
        elif status is ResponseStatus.CONTINUE:
            # The meta group decided; the stream's leader answers once it is at that version.
            (version,) = _U64.unpack_from(payload)
            old = pending.request
            self._remove(number)
            header = b"%d" % version
            request = Request(
                self._origin,
                next(self._numbers),
                payload[8:].decode(),
                old.info,
                old.subject,
                old.reply,
                header,
                old.payload,
            )
            pending.request = request
            pending.sent = pending.perhaps_done = False
            self._keep(pending)
            self._try(pending, now_ms)
        else:
            self._remove(number)
            if pending.perhaps_done and status is ResponseStatus.ANSWER:
                payload = self._done_before(pending.request.subject, payload)
            if pending.on_answer is not None:
                pending.on_answer(payload)
            elif status is ResponseStatus.ANSWER:
                self._publish(pending.request, payload)

    def leader_serves(self, group: str, now_ms: int) -> None:
        """Send again what waits for this group's leader. But not what another broker has, which is there: it answers, or it
        says that it does not lead, or it took a pull and gives back what is left of it."""
        for number, pending in self._pending.items():
            if pending.request.group == group and not self._is_there(pending, now_ms):
                self._resent[number] = None
        self._send_some(now_ms)

    def _send_some(self, now_ms: int) -> None:
        for number in list(islice(self._resent, RESENT_MAX)):
            del self._resent[number]
            pending = self._pending.get(number)
            if pending is not None:
                self._try(pending, now_ms)

    def _is_there(self, pending: Pending, now_ms: int) -> bool:
        """Does a broker in contact, which does not lead the group, have the request and owe a word of it?"""
        group, node = pending.request.group, pending.sent_to
        if not pending.sent or now_ms >= pending.next_try_ms or node == self._leader_of(group):
            return False
        return node in (*self._peers(group), self._node)

    def groups_gone(
        self,
        groups: list[str],
        successor: Callable[[Request], str | None],
        answer: Callable[[bytes], bytes],
        now_ms: int,
    ) -> None:
        """Groups are gone. Who asks about a deleted stream hears it now, in the words of `answer`. A stream that goes on in another
        group is asked with the next tick, or when the leader that has the request has said whether it began."""
        gone = frozenset(groups)
        for number, pending in list(self._pending.items()):
            if pending.request.group not in gone:
                continue
            if pending.request.subject.startswith(RESTORE_PREFIX):
                # Who ended the restore says why; where nobody does, it has ended all the same.
                pending.give_up_ms = min(pending.give_up_ms, pending.next_try_ms + REQUEST_RETRY_MS)
                continue
            group = successor(pending.request)
            if group is not None:
                if not is_same_stream(pending.request.group, group):
                    if (pending.sent or pending.perhaps_done) and self._gave_up(pending):
                        continue
                    pending.sent = pending.perhaps_done = (
                        False  # It has nothing of what an earlier leader did.
                    )
                pending.request = replace(pending.request, group=group)
                if not self._is_there(pending, now_ms):
                    pending.next_try_ms = min(pending.next_try_ms, now_ms)
            else:
                self.response(number, ResponseStatus.ANSWER, answer(pending.request.subject), 0)

    def tick(self, now_ms: int) -> None:
        """Repeat what is overdue, give up what took too long."""
        for number, pending in list(self._pending.items()):
            if now_ms >= pending.give_up_ms:
                self._remove(number)
                self._fail(pending)
            elif now_ms >= pending.next_try_ms:
                self._resent[number] = None
        self._send_some(now_ms)

    def _fail(self, pending: Pending) -> None:
        request = pending.request
        if pending.on_answer is not None:
            pending.on_answer(None)
        else:
            self._publish(request, self._unavailable(request))

    def _publish(self, request: Request, payload: bytes) -> None:
        self._answered(request.info, request.subject, request.payload, payload)
        publish_answer(self._network, request, payload)

    def end_pulls(self) -> None:
        """The process stops: pulls of its clients that no leader has end, as they do at a leader that stops."""
        for number, pending in list(self._pending.items()):
            request = pending.request
            if request.subject.startswith(PULL_PREFIX) and not pending.sent:
                self._remove(number)
                ended = status(request.reply, *SERVER_SHUTDOWN)
                self._network.deliver(request.info.account, request.reply, [ended])

    def asking(self) -> set[int]:
        """`id` of the `ClientInfo` of clients that wait for an answer, other than messages that they pull."""
        return {
            id(pending.request.info)
            for pending in self._pending.values()
            if pending.on_answer is None and not pending.request.subject.startswith(PULL_PREFIX)
        }

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        if self._resent:
            return 0
        return min((min(p.next_try_ms, p.give_up_ms) for p in self._pending.values()), default=None)


def _as_told(request: Request, leader: str) -> Request:
    """As its leader is to see it: whoever is an operator here is none in another super-cluster."""
    if not (world_of(leader) and request.info.is_operator):
        return request
    return replace(request, info=replace(request.info, is_operator=False))


def publish_answer(network: Network, request: Request, payload: bytes) -> None:
    """Publish an answer to the client that asked. Pulls and direct gets are answered by messages: a refusal of one is a
    status, for an answer in JSON would be taken for one of them."""
    if not request.reply:
        return
    header = b""
    if request.subject.startswith(PULL_PREFIX):
        header, payload = pull_refusal(request.subject, payload), b""
    elif request.subject.startswith(DIRECT_PREFIX):
        header, payload = direct_refusal(request.subject, payload), b""
    network.publish(request.info.account, request.reply, b"", header, payload)


def continue_payload(group: str, version: int) -> bytes:
    """CONTINUE's payload: ask that group's leader, which answers once it is at that configuration version."""
    return _U64.pack(version) + group.encode()
