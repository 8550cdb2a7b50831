"""Deliveries that wait until the operation behind them is committed (SF-2).

A leader that is cut off may go on serving for a while, and another leader may meanwhile have delivered the
same messages and confirmed their acknowledgements. The old leader cannot commit, however. So a message that
needs an acknowledgement leaves only after the entry that records its delivery is committed.
`uncertain_deliveries.py` handles the deliveries of a leader that is deposed before that. A consumer without
acknowledgements has no such guarantee and no such delay.

A process that was stopped may read confirmations that commit such an entry although others already lead.
Deliveries that waited during a stall therefore wait until the leadership is confirmed; by then a link that
was given up is known to be gone.

The deliveries and status messages of one consumer stay in order: those behind a held one are held too.
"""

from __future__ import annotations

from collections import Counter, deque

from supercluster.broker.jetstream.consumer.leader import ConsumerLeader
from supercluster.broker.jetstream.consumer.pull import Delivery
from supercluster.broker.jetstream.consumer.uncertain_deliveries import Deliver, Held

# A stream's leader pumps nothing while so much waits for commits that do not come.
HELD_BYTES_MAX = 16 * 1024 * 1024
# Own time that falls behind the machine's by so much tells of a stall after which others may lead (`own_time.py`).
STALL_MS_MAX = 300


class CommitGate:
    """Deliveries of one stream's consumers, on its leader."""

    def __init__(self, deliver: Deliver) -> None:
        self._deliver = deliver
        self._fresh: list[tuple[ConsumerLeader, list[Delivery]]] = []
        self._held: deque[Held] = deque()
        self._held_bytes = 0
        self._holds: Counter[ConsumerLeader] = Counter()
        self._leads_surely = True

    @property
    def is_empty(self) -> bool:
        """Does nothing wait for a commit?"""
        return not self._held

    @property
    def is_full(self) -> bool:
        """Is nothing to be pumped before something was committed?"""
        return self._held_bytes >= HELD_BYTES_MAX

    def add(self, leader: ConsumerLeader, deliveries: list[Delivery]) -> None:
        """What a pump returned; its operations are not proposed yet."""
        if deliveries:
            self._fresh.append((leader, deliveries))

    def proposed(self, index: int, term: int, now_ms: int, behind_ms: int = 0) -> None:
        """The operations of everything fresh are in the log, up to the entry at `index`, of that term; or there were none
        to propose. `now_ms`: of the machine, since it decides what is safe; `behind_ms`: so far own time is behind it."""
        fresh, self._fresh = self._fresh, []
        for leader, deliveries in fresh:
            # What was served no message has no entry to wait for: it is told so at once.
            waits = leader.state.config.needs_ack and any(
                served.count for delivery in deliveries for served in delivery.served
            )
            if waits or self._holds[leader]:
                size_bytes = sum(len(item[3]) for delivery in deliveries for item in delivery.items)
                self._held.append(Held(index, term, now_ms, behind_ms, leader, deliveries, size_bytes))
                self._held_bytes += size_bytes
                self._holds[leader] += 1
            else:
                self._deliver(deliveries)

    def committed(self, index: int, behind_ms: int) -> bool:
        """Entries up to `index` are applied: hand out what waited for them. False: the process stood still meanwhile, and
        nothing leaves before `leads_surely`, or `leave`."""
        if self._leads_surely and self._held and behind_ms - self._held[0].behind_ms > STALL_MS_MAX:
            self._leads_surely = False
            return False
        while self._leads_surely and self._held and self._held[0].index <= index:
            held = self._held.popleft()
            self._forget(held)
            self._deliver(held.deliveries)
        return True

    def leads_surely(self, index: int, behind_ms: int) -> None:
        """A quorum confirmed the leadership since the process stood still."""
        self._leads_surely = True
        for held in self._held:
            held.behind_ms = behind_ms
        self.committed(index, behind_ms)

    def not_proposed(self) -> None:
        """What is fresh was not appended."""
        fresh, self._fresh = self._fresh, []
        for leader, deliveries in reversed(fresh):
            self._take_back(leader, deliveries)

    def leave(self) -> list[Held]:
        """This leader is deposed. Returns what waits for entries that nobody knows the commit of; behind a stall, also what
        waits for those that are applied."""
        self.not_proposed()
        held, self._held = self._held, deque()
        self._leads_surely = True
        for each in held:
            self._forget(each)
        return list(held)

    def take_back(self, leader: ConsumerLeader | None = None) -> None:
        """The named consumer is gone; without a name, the stream is. Nothing of theirs was handed out."""
        if leader is None:
            self.not_proposed()
        kept: deque[Held] = deque()
        while self._held:
            held = self._held.pop()
            if leader is None or held.leader is leader:
                self._forget(held)
                self._take_back(held.leader, held.deliveries)
            else:
                kept.appendleft(held)
        self._held = kept

    def _forget(self, held: Held) -> None:
        self._held_bytes -= held.size_bytes
        self._holds[held.leader] -= 1
        if not self._holds[held.leader]:
            del self._holds[held.leader]

    def _take_back(self, leader: ConsumerLeader, deliveries: list[Delivery]) -> None:
        for delivery in reversed(deliveries):
            leader.take_back(delivery)
        # What only told of requests that are over is still true.
        self._deliver([delivery for delivery in deliveries if not delivery.served])
