"""JetStream API requests that survive the loss of a broker or of a stream's leader.

`JetStreamSession` keeps one connection, retries at other brokers while it gets no answer, and gives up after
`patience_seconds` without one. A permanent error of JetStream (no such stream) is raised at once.
"""

from __future__ import annotations

import datetime as dt
import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from supercluster.spark.client import BulkPort, ClientConnection, ConnectionFailedError, Servers
from supercluster.spark.retention import Left, Limits, left_of

T = TypeVar("T")
ANSWER_SECONDS = 2.0
"""How long one broker may take to answer before another one is asked."""
PAUSE_SECONDS_MAX = 0.5
SETTLED_SECONDS = 5.0
"""Longer than a broker leads that hears of no majority."""
LINEAGE_KEY = "supercluster.dev/lineage"
"""Stream metadata that outlives a cutover; without it the time of the stream's creation stands for its lineage."""
ERR_NO_MESSAGE = 10037
ERR_STREAM_NOT_FOUND = 10059
UNAVAILABLE = 503
BAD_REQUEST = 400
WORK_QUEUE, INTEREST = "workqueue", "interest"


class StreamMissingError(Exception):
    """The stream does not exist."""

    def __init__(self, stream: str, *, was_read: bool = False) -> None:
        super().__init__(
            f"stream {stream!r} was deleted while it was read; stop the query, or make the stream again and start the query"
            " with a new checkpoint location"
            if was_read
            else f"stream {stream!r} does not exist on these brokers; check the option 'stream' and the user's account"
        )
        self.stream = stream


class NotReadableError(Exception):
    """The stream cannot be read without taking its messages from somebody else."""

    def __init__(self, stream: str) -> None:
        super().__init__(
            f"stream {stream!r} is a work queue (retention WorkQueue): a message is there for one consumer, and reading"
            " would take it away. Spark reads streams with retention Limits or Interest; name those in the option 'subscribe', or"
            " have subscribePattern match no other"
        )


class DataRemovedError(Exception):
    """Messages at the stream's head are gone that had not been read."""

    def __init__(self, stream: str, wanted: int, first: int) -> None:
        super().__init__(
            f"stream {stream!r}: sequence {wanted} was to be read next, but the stream begins at {first}: retention or"
            " a purge removed messages before they were read. Set failOnDataLoss to false to go on without them."
        )


class StartBeyondEndError(Exception):
    """The given start is not there yet."""

    def __init__(
        self, stream: str, wanted: int | dt.datetime, last: int, option: str = "startingOffsets"
    ) -> None:
        most = "a time that has passed" if isinstance(wanted, dt.datetime) else f"at most {last + 1}"
        super().__init__(
            f"stream {stream!r} ends at sequence {last}, and {option} begins behind it ({wanted}); give {most},"
            " or check that this is the stream that was meant"
        )


class StreamCutOffError(Exception):
    """The stream ends before what was read of it, or planned."""

    def __init__(self, stream: str, wanted: int, last: int) -> None:
        super().__init__(
            f"stream {stream!r} ends at sequence {last}, and this query was at {wanted}: the stream was restored from an older"
            " copy, or a power failure took its end. Start the query with a new checkpoint location."
        )


def settled(look: Callable[[], T]) -> T:
    """What `look` finds, which asks the stream's leader. One that stood still may answer from its old state before it hears of the next
    leader, so an end that comes too early is looked at again.

    Raises:
        StreamCutOffError: it stays.
    """
    until_s = time.monotonic() + SETTLED_SECONDS
    while True:
        try:
            return look()
        except StreamCutOffError:
            if time.monotonic() >= until_s:
                raise
            time.sleep(PAUSE_SECONDS_MAX)


class ApiRefusedError(Exception):
    """JetStream refused a request for good."""

    def __init__(self, subject: str, error: dict[str, Any]) -> None:
        super().__init__(
            f"JetStream refused {request_name(subject)}: {error.get('description', 'no reason given')}"
            f" (code {error.get('code')}, err_code {error.get('err_code')})"
        )
        self.code = int(error.get("code") or 0)
        self.err_code = int(error.get("err_code") or 0)


def request_name(subject: str) -> str:
    """CONSUMER.CREATE, for instance: a subject's names of streams and consumers are no help."""
    return ".".join(token for token in subject.removeprefix("$JS.API.").split(".") if token.isupper())


class UnansweredError(Exception):
    """Nobody answered for as long as the reader is patient."""


@dataclass(frozen=True, slots=True)
class StreamState:
    """What a plan needs to know of a stream, as its leader said it."""

    name: str
    lineage: str
    first_sequence: int
    """The first message's sequence; last_sequence + 1 when there is none."""
    last_sequence: int
    messages: int
    bytes: int
    limits: Limits = field(default_factory=Limits)
    messages_per_subject: int = 0
    """How many of a subject it keeps; 0: all."""
    is_interest: bool = False
    """Is a message removed when all consumers have it?"""
    followers: tuple[str, ...] = field(default=(), compare=False)
    """The brokers that have a copy and do not lead."""


class JetStreamSession:
    """A connection that is renewed, for questions; the reader of a range uses its connection too."""

    def __init__(self, servers: Servers, *, patience_seconds: float) -> None:
        self._servers = servers
        self._patience_seconds = patience_seconds
        self._connection: ClientConnection | None = None

    def connection(self, deadline: float) -> ClientConnection:
        if self._connection is None:
            self._connection = self._servers.connect(deadline)
        return self._connection

    def drop(self) -> None:
        """Close the connection; the next question takes another broker."""
        if self._connection is not None:
            self._servers.learn(self._connection.server_names, self._connection.address)
            self._connection.close()
            self._connection = None

    def broker(self) -> ClientConnection:
        """The connection to the broker that is asked next."""
        return self.connection(time.monotonic() + self._patience_seconds)

    def bulk_ports(self, followers: Collection[str], is_wanted: Callable[[str], bool]) -> Iterator[BulkPort]:
        """The bulk ports of brokers; none where the connected one has none. That one is the first, but the last if others
        are the followers. Further brokers are followers, or are wanted by then."""
        connection = self.broker()
        self._servers.learn(connection.server_names, connection.address)
        own = connection.bulk_port
        if own is None:
            return
        is_last = bool(followers) and connection.server_name not in followers
        if not is_last:
            yield own
        for other in self._servers.others(connection.address, followers):
            name, port = other.server_name, other.bulk_port
            if port is not None and (name in followers or is_wanted(name)):
                yield port
        if is_last:
            yield own

    def ask(
        self,
        subject: str,
        body: dict[str, Any],
        *,
        tail: bytes = b"",
        patience_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Ask until answered, or for the session's patience unless another one is given. `tail` stands behind the body.

        Raises:
            ApiRefusedError: JetStream's answer is an error that repeating does not cure.
            UnansweredError: nobody answered in time.
            LoginRefusedError: the credentials are not good.
        """
        patience_seconds = self._patience_seconds if patience_seconds is None else patience_seconds
        deadline = time.monotonic() + patience_seconds
        pause_seconds = 0.02
        payload = (json.dumps(body).encode() if body else b"") + tail
        while True:
            try:
                answer = json.loads(self.connection(deadline).request(subject, payload, ANSWER_SECONDS))
                error = answer.get("error")
                if not error:
                    return dict(answer)
                refused = ApiRefusedError(subject, error)
                if refused.code != UNAVAILABLE:
                    raise refused
                last: Exception = refused
            except (ConnectionFailedError, TimeoutError, ValueError) as failure:
                last = failure
                self.drop()
            if time.monotonic() >= deadline:
                raise UnansweredError(
                    f"{request_name(subject)} got no answer for {patience_seconds:g} s; check that the brokers of the option"
                    f" 'url' run and have JetStream, or raise patienceSeconds; last: {last}"
                )
            time.sleep(pause_seconds)
            pause_seconds = min(PAUSE_SECONDS_MAX, pause_seconds * 2)

    def stream_state(self, stream: str, *, was_read: bool = False) -> StreamState:
        """The stream's bounds and lineage.

        Raises:
            StreamMissingError: there is no such stream.
            NotReadableError: it is a work queue.
        """
        try:
            answer = self.ask(f"$JS.API.STREAM.INFO.{stream}", {})
        except ApiRefusedError as refused:
            if refused.err_code == ERR_STREAM_NOT_FOUND or refused.code == 404:
                raise StreamMissingError(stream, was_read=was_read) from None
            raise
        if answer["config"].get("retention") == WORK_QUEUE:
            raise NotReadableError(stream)
        state = answer["state"]
        last = int(state["last_seq"])
        messages = int(state["messages"])
        metadata = answer["config"].get("metadata") or {}
        return StreamState(
            name=stream,
            lineage=str(metadata.get(LINEAGE_KEY) or answer["created"]),
            first_sequence=int(state["first_seq"]) if messages else last + 1,
            last_sequence=last,
            messages=messages,
            bytes=int(state["bytes"]),
            limits=Limits.of(answer["config"]),
            messages_per_subject=max(0, int(answer["config"].get("max_msgs_per_subject") or 0)),
            is_interest=answer["config"].get("retention") == INTEREST,
            followers=tuple(each["name"] for each in (answer.get("cluster") or {}).get("replicas") or ()),
        )

    def left(self, state: StreamState, next_sequence: int, now: dt.datetime, asks_time: bool) -> Left:
        """What is left of the stream's limits until it removes messages that a reader has not read, which reads `next_sequence` next.
        `asks_time`: of the first of them, if that matters.

        Raises:
            ApiRefusedError, UnansweredError: the user may not read single messages, or nobody answers.
        """
        first = max(next_sequence, state.first_sequence)
        unread = min(max(0, state.last_sequence + 1 - first), state.messages)
        oldest = now if not unread else None
        if unread and asks_time and state.limits.age_seconds is not None:
            message = self._next_message(state.name, first, patience_seconds=0.0)
            oldest = dt.datetime.fromisoformat(message["time"]) if message is not None else now
        mean_bytes = state.bytes / max(1, state.messages)
        return left_of(state.limits, unread=unread, mean_bytes=mean_bytes, oldest=oldest, now=now)

    def stream_names(self) -> list[str]:
        """The names of all streams that the user's account has."""
        names: list[str] = []
        while True:
            answer = self.ask("$JS.API.STREAM.NAMES", {"offset": len(names)})
            page = [str(name) for name in answer.get("streams") or ()]
            names += page
            if not page or len(names) >= int(answer.get("total") or 0):
                return names

    def next_existing(self, stream: str, sequence: int) -> int | None:
        """The first existing sequence at or above `sequence`, asked of the stream's leader; None when there is none."""
        message = self._next_message(stream, sequence)
        return None if message is None else int(message["seq"])

    def first_since(self, state: StreamState, moment: dt.datetime) -> int:
        """The first sequence that was stored at `moment` or later, by bisection; last_sequence + 1 when there is none."""
        low, high = state.first_sequence, state.last_sequence + 1
        while low < high:
            middle = (low + high) // 2
            message = self._next_message(state.name, middle)
            if message is None or dt.datetime.fromisoformat(message["time"]) >= moment:
                high = middle
            else:
                low = int(message["seq"]) + 1
        return min(low, state.last_sequence + 1)

    def _next_message(
        self, stream: str, sequence: int, *, patience_seconds: float | None = None
    ) -> dict[str, Any] | None:
        subject, body = f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": sequence, "next_by_subj": ">"}
        try:
            answer = self.ask(subject, body, patience_seconds=patience_seconds)
        except ApiRefusedError as refused:
            if refused.err_code == ERR_NO_MESSAGE:
                return None
            if refused.err_code == ERR_STREAM_NOT_FOUND:
                raise StreamMissingError(stream) from None
            raise
        return dict(answer["message"])
