"""Pull requests: parsing them, queueing them in bounded order, and the status messages that end them.

A request is one message to `$JS.API.CONSUMER.MSG.NEXT.…`. It waits until its batch is full, it expires, or
its inbox has no subscriber any more. Clients compare the status texts, so these are NATS's own.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from supercluster.broker.bounds import I32_MAX, whole_number
from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.consumer.absent_pulls import AbsentPulls
from supercluster.broker.jetstream.encoding.json_fields import Fields, decode_object
from supercluster.broker.jetstream.encoding.timestamps import format_duration
from supercluster.broker.jetstream.errors import ApiError

Item = tuple[bytes, bytes, bytes, bytes | memoryview]
"""(shown subject, reply, header, payload), as `Network.deliver` takes them."""

HasInterest = Callable[[bytes], bool]
HasRoom = Callable[[bytes], bool]
GiveBack = Callable[[bytes], None]
"""Called with a request for what is still open, when its leader is deposed: whoever sent it asks the next leader."""

LEADERSHIP_CHANGE = (409, "Leadership Change")
SERVER_SHUTDOWN = (409, "Server Shutdown")
HEARTBEAT_LEAST_NS = 100_000_000
"""Of a pull request, as of a push consumer: each heartbeat is a message, and thousands of requests may wait."""
# A request for more than this is cut to it; a client asks again.
BATCH_MAX = 1_000_000


class Asker(Protocol):
    """Who gets messages: a pull request, or where a push consumer delivers to."""

    inbox: bytes
    left: int
    bytes_left: int
    """Bytes that it takes; 0: as many as there are."""


@dataclass(frozen=True, slots=True)
class Served:
    """What one request was given in one go, and how to take that back."""

    request: Waiting | None
    """None: what a push consumer sent."""
    count: int
    bytes_left: int
    """The request's, before it was served."""
    is_over: bool
    """It left the line with this."""


@dataclass(slots=True)
class Delivery:
    """What goes to one inbox, messages and status messages in order."""

    inbox: bytes
    items: list[Item]
    served: list[Served] = field(default_factory=list)
    """Empty: nothing but status messages."""


def status(inbox: bytes, code: int, text: str, *headers: tuple[str, object]) -> Item:
    """A status message without payload."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return (inbox, b"", f"NATS/1.0 {code} {text}\r\n{lines}\r\n".encode(), b"")


@dataclass(frozen=True, slots=True)
class PullSpec:
    """What a request asks for. 0 is "not set" for expires, bytes and heartbeat."""

    batch: int = 1
    expires_ns: int = 0
    max_bytes: int = 0
    no_wait: bool = False
    heartbeat_ns: int = 0
    group: str = ""
    pin_id: str = ""
    priority: int = 0
    min_pending: int = 0
    min_ack_pending: int = 0


class PullRefusedError(Exception):
    """The request is not taken; `code`, `text` and `headers` make the status message."""

    def __init__(self, code: int, text: str, *headers: tuple[str, object]) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
        self.headers = headers


def parse_pull(payload: bytes | memoryview) -> PullSpec:
    """Read a request: NATS's JSON, or how many messages; what is neither asks for one.

    Raises:
        PullRefusedError: not a request, or one for a feature these brokers do not have.
    """
    raw = bytes(payload).strip()
    if not raw.startswith(b"{"):
        count = whole_number(raw, I32_MAX) or 1
        return PullSpec(batch=min(max(count, 1), BATCH_MAX))
    try:
        fields = Fields(decode_object(raw), "request")
        spec = PullSpec(
            batch=min(max(fields.integer("batch"), 1), BATCH_MAX),
            expires_ns=fields.integer("expires"),
            max_bytes=max(fields.integer("max_bytes"), 0),
            no_wait=fields.boolean("no_wait"),
            heartbeat_ns=max(fields.integer("idle_heartbeat"), 0),
            group=fields.text("group"),
            pin_id=fields.text("id"),
            priority=fields.integer("priority"),
            min_pending=fields.integer("min_pending"),
            min_ack_pending=fields.integer("min_ack_pending"),
        )
    except ApiError as problem:
        raise PullRefusedError(400, f"Bad Request - {problem.description}") from None
    if spec.heartbeat_ns and (not spec.expires_ns or spec.heartbeat_ns * 2 > spec.expires_ns):
        raise PullRefusedError(400, "Bad Request - heartbeat value too large")
    if 0 < spec.heartbeat_ns < HEARTBEAT_LEAST_NS:
        told, least = format_duration(spec.heartbeat_ns), format_duration(HEARTBEAT_LEAST_NS)
        raise PullRefusedError(400, f"Bad Request - idle_heartbeat is {told}, it has to be at least {least}")
    return spec


def check_pull(spec: PullSpec, config: ConsumerConfig) -> None:
    """The consumer's own bounds on requests.

    Raises:
        PullRefusedError: 409 with NATS's text.
    """
    if config.max_batch and spec.batch > config.max_batch:
        raise PullRefusedError(409, f"Exceeded MaxRequestBatch of {config.max_batch}")
    if config.max_expires_ns and spec.expires_ns > config.max_expires_ns:
        raise PullRefusedError(409, f"Exceeded MaxRequestExpires of {format_duration(config.max_expires_ns)}")
    if config.max_bytes and spec.max_bytes > config.max_bytes:
        raise PullRefusedError(409, f"Exceeded MaxRequestMaxBytes of {config.max_bytes}")


def check_time(spec: PullSpec) -> None:
    """
    Raises:
        PullRefusedError: 408, its time is over before it begins.
    """
    if spec.expires_ns < 0:
        raise PullRefusedError(408, "Request Timeout", *_unserved(spec.batch, spec.max_bytes))


def _unserved(messages: int, size_bytes: int) -> tuple[tuple[str, object], ...]:
    return (("Nats-Pending-Messages", messages), ("Nats-Pending-Bytes", size_bytes))


class Waiting:
    """A request in the line."""

    __slots__ = (
        "bytes_left",
        "expires_ns",
        "give_back",
        "heartbeat_every_ns",
        "heartbeat_ns",
        "inbox",
        "left",
        "pin_id",
        "served",
        "spec",
    )

    def __init__(self, inbox: bytes, spec: PullSpec, now_ns: int, give_back: GiveBack | None = None) -> None:
        self.inbox = inbox
        self.spec = spec
        self.give_back = give_back
        self.pin_id = spec.pin_id
        self.left = spec.batch
        self.bytes_left = spec.max_bytes
        self.served = 0
        self.expires_ns = now_ns + spec.expires_ns if spec.expires_ns else 0
        self.heartbeat_every_ns = spec.heartbeat_ns
        self.heartbeat_ns = now_ns + spec.heartbeat_ns if spec.heartbeat_ns else 0

    def ended(self, code: int, text: str) -> Item:
        """The status that ends the request and says what of it is unserved."""
        return status(self.inbox, code, text, *_unserved(self.left, self.bytes_left))

    def rest(self, now_ns: int) -> bytes:
        """A request for what is still open."""
        fields: dict[str, Any] = {"batch": self.left, "no_wait": self.spec.no_wait}
        if self.expires_ns:
            fields["expires"] = left_ns = max(self.expires_ns - now_ns, 1)
            # A heartbeat has to fit twice into the time that is left.
            every_ns = min(self.heartbeat_every_ns, left_ns // 2)
            fields["idle_heartbeat"] = every_ns if every_ns >= HEARTBEAT_LEAST_NS else 0
        if self.spec.max_bytes:
            fields["max_bytes"] = self.bytes_left
        # Without the pin: the next leader has none, and pins whoever comes first.
        spec = self.spec
        fields |= {"group": spec.group, "priority": spec.priority}
        fields |= {"min_pending": spec.min_pending, "min_ack_pending": spec.min_ack_pending}
        return json.dumps(fields).encode()

    def take_back(self, served: Served) -> None:
        """That never left this broker: the request is as it was before it."""
        self.left += served.count
        self.served -= served.count
        self.bytes_left = served.bytes_left

    def go_on(self, now_ns: int) -> list[Delivery]:
        """The next leader serves the rest; where nobody can send it there, it ends with a status."""
        if self.give_back is None:
            return [Delivery(self.inbox, [status(self.inbox, *LEADERSHIP_CHANGE)])]
        self.give_back(self.rest(now_ns))
        return []

    def one_shot_is_over(self) -> bool:
        """Nothing more is there: does a no_wait request end now? With `expires` it waits for its first message."""
        return self.spec.no_wait and (self.served > 0 or not self.expires_ns)

    def deadline_ns(self) -> int:
        """When something is due for this request; 0: never."""
        if self.expires_ns and self.heartbeat_ns:
            return min(self.expires_ns, self.heartbeat_ns)
        return self.expires_ns or self.heartbeat_ns


class PullLine:
    """The requests of one consumer, first come first served; one that was served in part goes to the back. One that nobody listens
    to is out of the line, and comes back to its front."""

    __slots__ = ("_absent", "_line", "_max")

    def __init__(self, max_waiting: int) -> None:
        self._line: deque[Waiting] = deque()
        self._max = max_waiting
        self._absent: AbsentPulls[Waiting] = AbsentPulls(max_waiting)

    def __len__(self) -> int:
        return len(self._line)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(self._line)

    @property
    def any_absent(self) -> bool:
        """Are there requests besides, whose clients may come back?"""
        return bool(self._absent)

    def add(self, request: Waiting, now_ns: int, has_interest: HasInterest) -> list[Delivery]:
        """Take a request. When the line is full, those that are over make room first; their ends are returned.

        Raises:
            PullRefusedError: max_waiting requests wait.
        """
        ended: list[Delivery] = []
        if len(self._line) >= self._max:
            ended = self.sweep(now_ns, has_interest)
        if len(self._line) >= self._max:
            raise PullRefusedError(409, "Exceeded MaxWaiting")
        self._line.append(request)
        return ended

    def front(self) -> Waiting:
        return self._line[0]

    def front_has_room(self, has_room: HasRoom) -> bool:
        """Bring a request to the front whose client takes what it is sent; False when there is none."""
        for _ in range(len(self._line)):
            if has_room(self._line[0].inbox):
                return True
            self._line.rotate(-1)
        return False

    def bring(self, fits: Callable[[Waiting], bool]) -> Waiting | None:
        """Bring the first request that fits to the front; the others keep their order."""
        for at, request in enumerate(self._line):
            if fits(request):
                if at:
                    del self._line[at]
                    self._line.appendleft(request)
                return request
        return None

    def end_where(self, over: Callable[[Waiting], bool], code: int, text: str) -> list[Delivery]:
        """End the requests that are `over` with a status; returns what they are told."""
        ended = [request for request in self._line if over(request)]
        if ended:
            self._line = deque(request for request in self._line if not over(request))
        return [Delivery(request.inbox, [request.ended(code, text)]) for request in ended]

    def pop(self) -> Waiting:
        return self._line.popleft()

    def to_back(self) -> None:
        self._line.rotate(-1)

    def take_back(self, delivery: Delivery) -> None:
        """The delivery never left this broker: its requests are as they were before it."""
        for served in reversed(delivery.served):
            request = served.request
            if request is None:
                continue
            request.take_back(served)
            if served.is_over:
                self._line.appendleft(request)

    def sweep(self, now_ns: int, has_interest: HasInterest) -> list[Delivery]:
        """End the requests that expired, and put those aside that nobody listens to."""
        said: list[Delivery] = []
        kept: deque[Waiting] = deque()
        back = self._absent.back(now_ns, has_interest) if self._absent else []
        for request in (*back, *self._line):
            if not has_interest(request.inbox):
                # One that asks for what is there now is over.
                if request.expires_ns or not request.spec.no_wait:
                    self._absent.put(request, now_ns)
                continue
            if request.expires_ns and now_ns >= request.expires_ns:
                said.append(Delivery(request.inbox, [request.ended(408, "Request Timeout")]))
                continue
            kept.append(request)
        self._line = kept
        return said

    def beats_due(self, now_ns: int) -> list[Waiting]:
        """Requests whose idle heartbeat is due; the next one is scheduled."""
        due = [request for request in self._line if request.heartbeat_ns and now_ns >= request.heartbeat_ns]
        for request in due:
            request.heartbeat_ns = now_ns + request.heartbeat_every_ns
        return due

    def end_one_shots(self) -> list[Delivery]:
        """Nothing is there to deliver: no_wait requests end."""
        over = [request for request in self._line if request.one_shot_is_over()]
        if over:
            self._line = deque(request for request in self._line if not request.one_shot_is_over())
        return [Delivery(r.inbox, [status(r.inbox, 404, "No Messages")]) for r in over]

    def give_back(self, now_ns: int, in_doubt: Container[Waiting]) -> list[Delivery]:
        """Every request goes on with the next leader, but for those of which it is not known yet what they got."""
        line, self._line = [*self._line, *self._absent.take()], deque()
        return [said for request in line if request not in in_doubt for said in request.go_on(now_ns)]

    def end_all(self, code: int, text: str) -> list[Delivery]:
        """End every request with a status that says what of it is unserved."""
        self._absent.take()
        return self.end_where(lambda request: True, code, text)

    def clear(self, code: int, text: str) -> list[Delivery]:
        """End every request with the same status."""
        gone = [Delivery(r.inbox, [status(r.inbox, code, text)]) for r in self._line]
        self._line.clear()
        self._absent.take()
        return gone

    def deadline_ns(self) -> int | None:
        """When a request expires or a heartbeat is due, or somebody may be back."""
        found = [d for d in (request.deadline_ns() for request in self._line) if d]
        look_ns = self._absent.deadline_ns()
        return min(found if look_ns is None else (*found, look_ns), default=None)
