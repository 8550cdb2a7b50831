"""Decides which connections of blue are asked to go to green, and when; `redirection.py` carries that out.

A client that comes back at once is refused before INFO: it then tries another server, where an accepted one
would stay. (nats.js tries the server that it has just left first, and nats-py any of them.) When it comes
again it is served over the bridge, and asked again once it is quiet, three times in all. Then it stays, and
is listed (rule 20).
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, IntEnum
from itertools import islice

from supercluster.broker.net.clients.redirect.departures import Departure, Departures
from supercluster.broker.net.clients.redirect.facts import Facts, Reach, User, obstacle
from supercluster.broker.net.clients.redirect.orders import Order, Phase, Policy, RedirectOrders
from supercluster.broker.net.clients.redirect.refusals import Refusals
from supercluster.broker.net.clients.redirect.scouting import Scouting, Stage

ASKS_MAX = 3

PER_S = 100
"""Connections asked in a second at most; green lets them all in anew."""

SCAN_MAX = 256
"""Connections looked at in one step."""

PATIENCE_MS = 2000
"""How long a connection that waits for answers is left alone when it is first its turn."""

OVERDUE_PATIENCE_MS = 60_000
"""The same for one whose publishes are overdue. The link with green may be cut, or be catching up."""

AGAIN_MS = 2000
"""A client that came back is left alone for this long at least."""

RESTLESS_MS = 10_000
"""One that is never quiet is asked behind this, while it waits for no answer."""

USERS_MAX = 65_536
"""Users of green that are remembered."""

REFUSALS = {Policy.BRIDGE: (1, 1500), Policy.REFUSE: (5, 10_000)}
"""How often a client that is gone may be refused, and for how many milliseconds. Clients wait two seconds before they try a server again
that they know to be down, so one that knows no other server is not refused under `BRIDGE`; it may be unable to reach green, too."""


class Activity(IntEnum):
    """What a connection does."""

    QUIET = 0
    ACTIVE = 1
    UNSETTLED = 2
    """It waits for an answer, or has not taken all that it was sent."""
    OVERDUE = 3
    """What it publishes is not stored at once: the rest of it would arrive behind what it sends to green."""


class Verdict(Enum):
    """What becomes of a new connection."""

    SERVE = "serve"
    TELL = "tell"
    """Let it in, and ask it to leave at once: it does not know green yet."""
    REFUSE = "refuse"
    """Close it in place of its first PONG, without -ERR."""


class State(Enum):
    """Of a connection."""

    WAITING = "waiting"
    ASKED = "asked"
    RETURNED = "returned"
    BRIDGED = "bridged"


@dataclass(slots=True)
class Tracked:
    """One connection of an account in scope."""

    facts: Facts
    state: State
    asks: int
    """0 <= asks <= ASKS_MAX, but for one more in the phase `CLOSED`."""
    since_ms: int
    why: str = ""
    """Why it is bridged."""
    first_turn_ms: int | None = None
    """When it was first its turn."""

    @property
    def is_asked(self) -> bool:
        return self.state is State.ASKED


class Redirects:
    """All connections in scope of one broker."""

    def __init__(self, orders: RedirectOrders) -> None:
        self.orders = orders
        self.tracked: dict[int, Tracked] = {}
        self.users: dict[User, Scouting] = {}
        self.on_green: set[tuple[str, User]] = set()
        """Users that a green has reported, by its world, before there was an order as well."""
        self._candidates: dict[User, OrderedDict[int, None]] = {}
        """Who may be asked, in the order in which they are looked at."""
        self._departures = Departures()
        self._refusals = Refusals()
        self._credit_ms = 0
        self._stepped_ms: int | None = None
        self.counts: Counter[str] = Counter()
        """asked, returned, refused, gone: since the start."""

    def came(self, facts: Facts, now_ms: int) -> Verdict:
        """A connection's CONNECT was taken."""
        order = self.orders.order_of(facts.user.account)
        if order is None or facts.is_internal:
            return Verdict.SERVE
        found = self._departures.take(facts.likeness, now_ms)
        verdict = self._verdict(facts, order, found)
        if verdict is Verdict.REFUSE:
            self.counts["refused"] += 1
            if found is not None:
                self._departures.add(facts.likeness, found)
            return verdict
        asks = found.asks if found is not None else 0
        tracked = self.tracked[facts.id] = Tracked(facts, State.WAITING, asks, now_ms)
        if verdict is Verdict.TELL:
            self._ask(tracked, now_ms)
            return verdict
        if asks:
            self.counts["returned"] += 1
            tracked.state = State.RETURNED
            self._scouting(facts.user).came_back(now_ms)
        self._settle(tracked, order)
        return verdict

    def adopt(self, facts: Facts, now_ms: int) -> None:
        """The account of a connection that is served may have come into scope."""
        order = self.orders.order_of(facts.user.account)
        if order is not None and not facts.is_internal and facts.id not in self.tracked:
            tracked = self.tracked[facts.id] = Tracked(facts, State.WAITING, 0, now_ms)
            self._settle(tracked, order)

    def went(self, connection: int, now_ms: int) -> None:
        """A connection is gone."""
        tracked = self.tracked.pop(connection, None)
        if tracked is None:
            return
        if tracked.state is State.ASKED:
            self.counts["gone"] += 1
            self._departures.add(tracked.facts.likeness, Departure(tracked.asks, now_ms))
            self.left(tracked.facts.user.account, tracked.facts.likeness.address, now_ms)

    def left(self, account: str, address: str, now_ms: int) -> None:
        """A client that was asked, here or by another broker of this super-cluster, may come back from that address from now on."""
        order = self.orders.order_of(account)
        if order is not None:
            is_closed = order.phase is Phase.CLOSED
            times, within_ms = REFUSALS[Policy.REFUSE if is_closed else order.policy]
            self._refusals.allow(address, times, now_ms + within_ms)

    def turns_away(self, address: str, now_ms: int) -> bool:
        """Is a connection that comes from there refused before it is greeted?"""
        is_refused = self._refusals.take(address, now_ms)
        self.counts["refused"] += is_refused
        return is_refused

    def reported(self, world: str, user: User, now_ms: int) -> None:
        """A green says that the user is connected there; it may say so before there is an order."""
        if len(self.on_green) < USERS_MAX:
            self.on_green.add((world, user))
        if user in self.users and world == self._world_for(user):
            self.users[user].reported(now_ms)

    def orders_changed(self) -> None:
        """Other orders are in force: who is out of scope is forgotten, the others are judged anew."""
        for connection, tracked in list(self.tracked.items()):
            order = self.orders.order_of(tracked.facts.user.account)
            if order is None:
                del self.tracked[connection]
            elif tracked.state is not State.ASKED:
                self._settle(tracked, order)
        self.users = {user: found for user, found in self.users.items() if self.orders.order_of(user.account)}

    def step(self, now_ms: int, activity: Callable[[int], Activity]) -> list[int]:
        """Whom to ask now, at the pace."""
        elapsed_ms = now_ms - self._stepped_ms if self._stepped_ms is not None else 1000 // PER_S
        self._stepped_ms = now_ms
        self._credit_ms = min(1000, self._credit_ms + elapsed_ms)
        for scouting in self.users.values():
            scouting.look(now_ms)
        asked: list[int] = []
        looks = SCAN_MAX
        for user in list(self._candidates):
            own = self._candidates[user]
            for _ in range(len(own)):
                if looks <= 0 or self._credit_ms < 1000 // PER_S or not self._may_ask(user):
                    break
                looks -= 1
                tracked = self.tracked.get(own.popitem(last=False)[0])
                if tracked is None or tracked.state not in (State.WAITING, State.RETURNED):
                    continue
                if self._is_due(tracked, now_ms, activity):
                    self._credit_ms -= 1000 // PER_S
                    self._ask(tracked, now_ms)
                    asked.append(tracked.facts.id)
                else:
                    own[tracked.facts.id] = None
            # The next user is the first one in the next step.
            del self._candidates[user]
            if own:
                self._candidates[user] = own
        return asked

    def next_looks(self) -> list[int]:
        """Connections that the next step may look at: of those it wants to know what they do."""
        found: list[int] = []
        for user, own in self._candidates.items():
            if self._may_ask(user):
                found += islice(own, SCAN_MAX - len(found))
            if len(found) >= SCAN_MAX:
                break
        return found

    # What is told

    def reach(self, tracked: Tracked) -> Reach:
        """Can the client be redirected?"""
        order = self.orders.order_of(tracked.facts.user.account)
        if order is None or obstacle(tracked.facts, order):
            return Reach.CANNOT
        return Reach.SEEN if self._stage(tracked.facts.user) is Stage.SEEN else Reach.MAY

    def shown_state(self, tracked: Tracked) -> State:
        """A user that green does not know stays bridged with all of its connections."""
        is_kept = tracked.state is not State.ASKED and self._stage(tracked.facts.user) is Stage.FAILING
        return State.BRIDGED if is_kept else tracked.state

    def why(self, tracked: Tracked) -> str:
        """Why the connection is still here; empty while it is under way."""
        if tracked.state is not State.ASKED and self._stage(tracked.facts.user) is Stage.FAILING:
            return "green has not reported the user"
        return tracked.why

    @property
    def failing(self) -> Iterator[User]:
        """Users that were sent to green and were not seen there."""
        return (user for user, found in self.users.items() if found.stage is Stage.FAILING)

    # Inside

    def _scouting(self, user: User) -> Scouting:
        if user not in self.users:
            is_seen = (self._world_for(user), user) in self.on_green
            self.users[user] = Scouting(Stage.SEEN if is_seen else Stage.UNTRIED)
        return self.users[user]

    def _world_for(self, user: User) -> str | None:
        """The green that the user is to go to."""
        order = self.orders.order_of(user.account)
        return order.world if order is not None else None

    def _stage(self, user: User) -> Stage:
        return self._scouting(user).stage

    def _verdict(self, facts: Facts, order: Order, found: Departure | None) -> Verdict:
        if order.phase is Phase.ANNOUNCE:
            return Verdict.SERVE
        is_closed = order.phase is Phase.CLOSED
        is_strict = is_closed or order.policy is Policy.REFUSE
        if is_strict and obstacle(facts, order):
            return Verdict.REFUSE
        if found is not None:  # It knows green.
            return Verdict.REFUSE if is_closed else Verdict.SERVE
        is_told = is_closed or (is_strict and self._stage(facts.user) is Stage.SEEN)
        return Verdict.TELL if is_told and not obstacle(facts, order) else Verdict.SERVE

    def _settle(self, tracked: Tracked, order: Order) -> None:
        """Where a connection belongs that is not asked at present."""
        is_closed = order.phase is Phase.CLOSED
        tracked.why = obstacle(tracked.facts, order)
        if not tracked.why and tracked.asks >= ASKS_MAX:
            tracked.why = f"it came back {tracked.asks} times"
        if tracked.why and not is_closed:
            tracked.state = State.BRIDGED
            return
        if tracked.state is State.BRIDGED:
            tracked.state = State.RETURNED if tracked.asks else State.WAITING
        if order.phase is not Phase.ANNOUNCE:
            self._candidates.setdefault(tracked.facts.user, OrderedDict())[tracked.facts.id] = None

    def _may_ask(self, user: User) -> bool:
        order = self.orders.order_of(user.account)
        if order is None or order.phase is Phase.ANNOUNCE:
            return False
        if order.phase is Phase.CLOSED:
            return True
        return self._scouting(user).may_ask

    def _is_due(self, tracked: Tracked, now_ms: int, activity: Callable[[int], Activity]) -> bool:
        order = self.orders.order_of(tracked.facts.user.account)
        if order is not None and order.phase is Phase.CLOSED:
            return True
        found = activity(tracked.facts.id)
        if tracked.state is State.RETURNED:
            here_ms = now_ms - tracked.since_ms
            is_quiet = found is Activity.QUIET and here_ms >= AGAIN_MS
            return is_quiet or (found < Activity.UNSETTLED and here_ms >= RESTLESS_MS)
        if tracked.first_turn_ms is None:
            tracked.first_turn_ms = now_ms
        patience_ms = OVERDUE_PATIENCE_MS if found is Activity.OVERDUE else PATIENCE_MS
        return found < Activity.UNSETTLED or now_ms - tracked.first_turn_ms >= patience_ms

    def _ask(self, tracked: Tracked, now_ms: int) -> None:
        tracked.state, tracked.since_ms = State.ASKED, now_ms
        tracked.asks += 1
        self.counts["asked"] += 1
        scouting = self._scouting(tracked.facts.user)
        if scouting.may_ask:
            scouting.sent(now_ms)
