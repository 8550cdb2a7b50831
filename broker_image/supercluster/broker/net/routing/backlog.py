"""Deliveries that one turn has no room for: kept in order, and continued in the next turns.

A turn has room for a number of deliveries, measured by their bytes and a fixed cost each (`turn.py`). Further
ones wait in a `Lane`, one for each source whose order is kept: a client's connection, a link, a subject that
streams deliver to. Lanes take turns. So neither a message with many subscribers nor a run of messages holds
up the loop or collects more output than a turn's room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from supercluster.broker.net.routing.account import Account
from supercluster.broker.net.routing.client_writes import put, put_items
from supercluster.broker.net.routing.subscriber import Subscription
from supercluster.broker.net.routing.turn import DELIVERY_BYTES, FLUSH_BYTES, SHARE_BYTES, VISIT_BYTES, Turn
from supercluster.broker.protocol.frames import Item, RemoteMessage
from supercluster.broker.protocol.parser import Message

FEW = 64
FEW_BYTES = 64 << 10
"""Subscriptions that get a message at once, and what that may be more than a turn has room for. More are gone through in
stretches."""

STRETCH = 512
"""Deliveries between two looks at how many connections have output."""

LANE_BYTES_MAX = 64 << 20
"""What waits in a lane that cannot hold up its source. Of what comes beyond it, that for many subscriptions is dropped and
counted, and the rest is delivered at once."""


class Job(Protocol):
    """Part of a lane's work."""

    size_bytes: int
    """What it keeps."""

    def run(self, turn: Turn) -> Sequence[Job]:
        """Work while the turn has room; returns what is left to do, in order."""


class FanOut:
    """One message for many subscriptions; what all of them are sent alike is made once."""

    __slots__ = ("_at", "_begin", "_end", "_message", "_skip", "_subscriptions", "_unit_bytes", "size_bytes")

    def __init__(self, subscriptions: Sequence[Subscription], message: Message, skip: object) -> None:
        """`skip`: the connection that gets nothing of it."""
        subject, reply, header, payload = message
        self._subscriptions = subscriptions
        self._message = message
        self._skip = skip
        self._at = 0
        self._begin = b"MSG " + subject
        self._end = b"%b%b%d\r\n%b\r\n" % (reply, b" " if reply else b"", len(payload), payload)
        self.size_bytes = self._unit_bytes = len(header) + len(payload) + DELIVERY_BYTES

    def run(self, turn: Turn) -> Sequence[Job]:
        dirty = turn.dirty
        while self._at < len(self._subscriptions):
            if turn.room_bytes <= 0:
                return (self,)
            count = max(1, min(STRETCH, turn.room_bytes // self._unit_bytes))
            before = len(dirty)
            self._stretch(turn, self._subscriptions[self._at : self._at + count])
            self._at += count
            turn.room_bytes -= count * self._unit_bytes + (len(dirty) - before) * FLUSH_BYTES
        return ()

    def _stretch(self, turn: Turn, subscriptions: Sequence[Subscription]) -> None:
        message, skip, begin, end = self._message, self._skip, self._begin, self._end
        has_header, size = bool(message[2]), len(message[3])
        dirty = turn.dirty
        for subscription in subscriptions:
            subscriber = subscription.subscriber
            if subscriber is skip or subscription.sid not in subscriber.subscriptions:
                continue
            if (
                subscription.interceptor is not None
                or subscription.max_messages
                or subscriber.gate is not None
                or (has_header and subscriber.headers)
            ):
                put(turn, subscription, message)
                continue
            out = subscriber.out
            if not out:
                dirty.append(subscriber)
            out += (begin, subscription.middle, end)
            subscriber.out_messages += 1
            subscriber.out_bytes += size
            subscription.delivered += 1


class ItemsFanOut:
    """What a stream delivers to a subject with many subscriptions."""

    __slots__ = ("_at", "_items", "_subscriptions", "_unit_bytes", "size_bytes")

    def __init__(self, subscriptions: Sequence[Subscription], items: Sequence[Item]) -> None:
        self._subscriptions = subscriptions
        self._items = items
        self._at = 0
        self.size_bytes = sum(len(header) + len(payload) + DELIVERY_BYTES for _, _, header, payload in items)
        self._unit_bytes = self.size_bytes + FLUSH_BYTES

    def run(self, turn: Turn) -> Sequence[Job]:
        subscriptions = self._subscriptions
        while self._at < len(subscriptions):
            if turn.room_bytes <= 0:
                return (self,)
            subscription = subscriptions[self._at]
            if subscription.sid in subscription.subscriber.subscriptions:
                put_items(turn, subscription, self._items)
            self._at += 1
            turn.room_bytes -= self._unit_bytes
        return ()


class FromLink:
    """Messages of one frame of a link."""

    __slots__ = ("_account", "_at", "_member", "_messages", "size_bytes")

    def __init__(
        self,
        account: Account,
        messages: Sequence[RemoteMessage],
        member: Callable[[list[Subscription]], Subscription],
    ) -> None:
        """`member` chooses one of a queue group."""
        self._account = account
        self._messages = messages
        self._member = member
        self._at = 0
        self.size_bytes = sum(len(one[4]) + len(one[5]) + DELIVERY_BYTES for one in messages)

    def run(self, turn: Turn) -> Sequence[Job]:
        sublist = self._account.sublist
        match_of = sublist.match
        messages = self._messages
        while self._at < len(messages):
            if turn.room_bytes <= 0:
                return (self,)
            plain, queues, subject, reply, header, payload = messages[self._at]
            self._at += 1
            match = match_of(subject)
            message = (subject, reply, header, payload)
            turn.room_bytes -= DELIVERY_BYTES + sublist.take_visited() * VISIT_BYTES
            for group in match.groups:
                if group.name in queues and group.local:
                    put(turn, self._member(group.local), message)
            if plain and (left := fan_out(turn, match.plain, message)) is not None:
                return (left, self)
        return ()


def fan_out(
    turn: Turn, subscriptions: Sequence[Subscription], message: Message, skip: object = None
) -> FanOut | None:
    """Give a message to subscriptions while the turn has room; returns what is left."""
    if len(subscriptions) <= FEW:
        size_bytes = (len(message[2]) + len(message[3]) + DELIVERY_BYTES) * len(subscriptions)
        if size_bytes <= max(turn.room_bytes, FEW_BYTES):
            turn.room_bytes -= size_bytes
            for subscription in subscriptions:
                if subscription.subscriber is not skip:
                    put(turn, subscription, message)
            return None
    job = FanOut(subscriptions, message, skip)
    return job if job.run(turn) else None


class Lane:
    """Work of one source that waits for room, in order."""

    __slots__ = ("_ended", "_jobs", "size_bytes")

    def __init__(self, left: Sequence[Job], ended: Callable[[], None] | None = None) -> None:
        """`ended` is called when nothing waits any more."""
        self._jobs = deque(left)
        self._ended = ended
        self.size_bytes = sum(job.size_bytes for job in left)

    @property
    def is_wide(self) -> bool:
        """Does all of it wait for a message with many subscriptions?"""
        return bool(self._jobs) and type(self._jobs[0]) is not FromLink

    def add(self, job: Job) -> None:
        """Behind what waits already."""
        self._jobs.append(job)
        self.size_bytes += job.size_bytes

    def work(self, turn: Turn) -> None:
        """Work while there is room."""
        jobs = self._jobs
        while jobs and turn.room_bytes > 0:
            job = jobs.popleft()
            self.size_bytes -= job.size_bytes
            for left in reversed(job.run(turn)):
                jobs.appendleft(left)
                self.size_bytes += left.size_bytes

    def go_on(self, turn: Turn) -> bool:
        """See `turn.Waiting`."""
        self.work(turn)
        if self._jobs:
            return True
        if self._ended is not None:
            self._ended()
        return False


class Lanes:
    """Lanes by name, there while something waits in them."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._lanes: dict[Any, Lane] = {}
        self.dropped = 0
        """Pieces of work of lanes that had too much waiting."""

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def __contains__(self, name: object) -> bool:
        return name in self._lanes

    def size_bytes(self, name: object) -> int:
        """What waits there."""
        lane = self._lanes.get(name)
        return lane.size_bytes if lane is not None else 0

    def do(self, name: object, job: Job) -> None:
        """At once where there is room and nothing waits; else in its turn."""
        lane = self._lanes.get(name)
        if lane is None:
            left = job.run(self._turn)
            if left:
                lane = self._lanes[name] = Lane(left, lambda: self._lanes.__delitem__(name))
                self._turn.wait(lane)
            return
        while lane.size_bytes > LANE_BYTES_MAX:
            if lane.is_wide:
                self.dropped += 1
                return
            self._turn.room_bytes = SHARE_BYTES
            lane.work(self._turn)
        lane.add(job)
