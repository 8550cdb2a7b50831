"""Deliveries whose log entry may or may not commit after this replica lost leadership.

If the entry is committed, the next leader redelivers its messages only after ack_wait. Without this module
clients would wait that long. So the former leader keeps these deliveries until this replica, now a follower,
applies the entry at their place in the log. If it is their own entry, they are sent. If it is another one,
their requests continue with the next leader unchanged. The remainder of a request continues when its last
delivery is decided, so it gets exactly the messages that it asked for.

All of that has to happen within a part of ack_wait: later, the next leader may have redelivered the message
and confirmed its acknowledgement (SF-2). After that nothing is sent. So this counts the machine's time, not
the process's own time (SF-29).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from supercluster.broker.jetstream.consumer.leader import ConsumerLeader
from supercluster.broker.jetstream.consumer.pull import Delivery, HasInterest, Waiting

# So long a delivery may wait for its entry, and never more than this part of the time for its acknowledgement.
DOUBT_MS_MAX = 15_000
_WAIT_PARTS = 2
# How often to look whether somebody listens now.
LOOK_MS = 50

Deliver = Callable[[list[Delivery]], None]


@dataclass(slots=True)
class Held:
    """One consumer's deliveries of one turn, which wait for an entry."""

    index: int
    term: int
    """The entry's: another leader's entry may come to stand in the same place."""
    at_ms: int
    behind_ms: int
    leader: ConsumerLeader
    deliveries: list[Delivery]
    size_bytes: int

    @property
    def until_ms(self) -> int:
        """When it is too late to hand them out."""
        config = self.leader.state.config
        wait_ns = min((config.ack_wait_ns, *config.backoff_ns))
        return self.at_ms + min(DOUBT_MS_MAX, wait_ns // 1_000_000 // _WAIT_PARTS)

    def requests(self) -> Iterable[Waiting]:
        """The pull requests that they are for."""
        for delivery in self.deliveries:
            for served in delivery.served:
                if served.request is not None:
                    yield served.request


class UncertainDeliveries:
    """Of one stream's replica, since it ceased to lead."""

    def __init__(self, deliver: Deliver, has_interest: HasInterest) -> None:
        self._deliver = deliver
        self._has_interest = has_interest
        self._held: deque[Held] = deque()
        self._committed = 0
        """So many of them, from the first on, have their entries in the log for good, and are only to be handed out."""
        self._requests: Counter[Waiting] = Counter()
        """Those whose end is not known, by how many of the held deliveries are for them."""
        self._over: set[Waiting] = set()
        self._look_ms = 0

    def __bool__(self) -> bool:
        return bool(self._held)

    def __contains__(self, request: object) -> bool:
        return request in self._requests

    def keep(self, held: Iterable[Held], applied_index: int) -> None:
        """This replica was deposed with these, in the order of their entries, of which some may be applied."""
        for each in held:
            self._held.append(each)
            self._committed += each.index <= applied_index
            for request in each.requests():
                self._requests[request] += 1

    def applied(self, index: int, term: int, now_ms: int, now_ns: int) -> None:
        """This entry was applied here."""
        while self._committed < len(self._held) and self._held[self._committed].index <= index:
            held = self._held[self._committed]
            if held.index < index or held.term != term:
                self._take_back(self._committed, now_ns)
                break
            self._committed += 1
        self._look_ms = now_ms
        self.tick(now_ms, now_ns)

    def _hand_out(self, now_ms: int, now_ns: int) -> None:
        """What is committed leaves, once somebody listens: a link that was lost with the leadership may come back behind the
        one that the entry came over."""
        self._look_ms = now_ms + LOOK_MS
        while self._committed and now_ms <= self._held[0].until_ms:
            held = self._held[0]
            if not all(self._has_interest(delivery.inbox) for delivery in held.deliveries):
                return
            self._held.popleft()
            self._committed -= 1
            for delivery in held.deliveries:
                self._over.update(s.request for s in delivery.served if s.request is not None and s.is_over)
            self._deliver(held.deliveries)
            self._decided(held, now_ns)

    def give_up(self, now_ns: int) -> None:
        """What is left never leaves: its entries are not in the log, or it is not known whether they are."""
        self._take_back(0, now_ns)

    def _take_back(self, count: int, now_ns: int) -> None:
        """All but the first `count`."""
        left = [self._held.pop() for _ in range(len(self._held) - count)]
        self._committed = min(self._committed, count)
        for held in left:
            for delivery in reversed(held.deliveries):
                for served in reversed(delivery.served):
                    if served.request is not None:
                        served.request.take_back(served)
        for held in reversed(left):
            # What only told of requests that are over is still true.
            self._deliver([delivery for delivery in held.deliveries if not delivery.served])
            self._decided(held, now_ns)

    def _decided(self, held: Held, now_ns: int) -> None:
        for request in held.requests():
            self._requests[request] -= 1
            if not self._requests[request]:
                del self._requests[request]
                if request not in self._over:
                    self._deliver(request.go_on(now_ns))
                self._over.discard(request)

    def tick(self, now_ms: int, now_ns: int) -> None:
        """Time is over for those that nothing was heard of, or that nobody listens to."""
        if not self._held:
            return
        if now_ms > self._held[0].until_ms:
            self.give_up(now_ns)
        elif self._committed and now_ms >= self._look_ms:
            self._hand_out(now_ms, now_ns)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        if not self._held:
            return None
        late_ms = self._held[0].until_ms + 1
        return min(late_ms, self._look_ms) if self._committed else late_ms
