"""Who is asked to go to green, in which order, and what becomes of those that come back (BG-5, BG-8; rules 19 to 22)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supercluster.broker.net.clients.redirect.crossings import Crossings
from supercluster.broker.net.clients.redirect.departures import FORGET_MS, Departure, Departures
from supercluster.broker.net.clients.redirect.facts import Facts, Likeness, Reach, User
from supercluster.broker.net.clients.redirect.orders import Order, Phase, Policy
from supercluster.broker.net.clients.redirect.redirects import (
    AGAIN_MS,
    OVERDUE_PATIENCE_MS,
    PATIENCE_MS,
    PER_S,
    RESTLESS_MS,
    Activity,
    Redirects,
    State,
    Verdict,
)
from supercluster.broker.net.clients.redirect.refusals import Refusals
from supercluster.broker.net.clients.redirect.report import counted
from supercluster.broker.net.clients.redirect.scouting import (
    RETURNS_MAX,
    SCOUT_MS,
    SCOUTS_MAX,
    TABLE,
    Event,
    Scouting,
    Stage,
)
from supercluster.broker.protocol.client_reports import AccountClients, Publishing

pytestmark = pytest.mark.covers("BG-5")

WORLD = "3fa9c21b"
ORDER = Order(
    "m1",
    Phase.REDIRECT,
    ("green-0:4222", "green-1:4222"),
    ("green-0.example:4222", "10.0.0.1:4222"),
    world=WORLD,
)
ANN, BOB = User("A", "ann"), User("A", "bob")


class Story:
    """One broker of blue."""

    def __init__(self, order: Order = ORDER, *, for_all: bool = False) -> None:
        self.order: Order | None = order
        self.for_all = for_all
        self.now_ms = 0
        self.core = Redirects(self)
        self.activity: dict[int, Activity] = {}
        self.last_id = 0

    def order_of(self, account: str) -> Order | None:
        return self.order if account == "A" else None

    def order_for_all(self) -> Order | None:
        return self.order if self.for_all else None

    def came(self, user: User = ANN, name: str = "c", **more: Any) -> tuple[int, Verdict]:
        self.last_id += 1
        facts = Facts(self.last_id, Likeness(user, name, "python", "10.1.1.1"), **more)
        return self.last_id, self.core.came(facts, self.now_ms)

    def step(self, later_ms: int = 100) -> list[int]:
        self.now_ms += later_ms
        return self.core.step(self.now_ms, lambda number: self.activity.get(number, Activity.QUIET))

    def went(self, number: int) -> None:
        self.core.went(number, self.now_ms)

    def is_refused(self, address: str = "10.1.1.1") -> bool:
        return self.core.turns_away(address, self.now_ms)

    def comes_back(self, user: User = ANN, name: str = "c") -> int:
        """A client that was asked is refused once, and then served over the bridge."""
        assert (self.is_refused("10.9.9.9"), self.is_refused(), self.is_refused()) == (False, True, False)
        number, verdict = self.came(user, name)
        assert verdict is Verdict.SERVE
        return number

    def state(self, number: int) -> State:
        return self.core.shown_state(self.core.tracked[number])


def connected(number: int, name: str, user: str = "ann", **more: Any) -> Any:
    """A connection, as it is counted."""
    told = {
        "language": "python",
        "peer": ("10.0.0.7", 4711),
        "is_websocket": False,
        "wants_info": True,
        "uses_tls": False,
        **more,
    }
    return SimpleNamespace(id=number, name=name, info=SimpleNamespace(user=user), **told)


def test_one_connection_of_each_user_goes_first_and_the_others_follow_when_green_has_the_user() -> None:
    """Rule 22."""
    story = Story()
    ann = [story.came(ANN)[0] for _ in range(3)]
    bob = [story.came(BOB)[0] for _ in range(2)]
    assert [*story.step(), *story.step(), *story.step()] == [ann[0], bob[0]]
    story.core.reported(WORLD, BOB, story.now_ms)
    assert [*story.step(), *story.step()] == bob[1:]
    story.core.reported(WORLD, ANN, story.now_ms)
    assert story.step() == ann[1:]
    assert story.core.reach(story.core.tracked[ann[1]]) is Reach.SEEN


def test_a_user_whom_another_green_has_goes_to_this_one_by_one_connection_first() -> None:
    """Rule 22: an earlier migration was called off, and the second green may refuse the user."""
    story = Story()
    story.core.reported(WORLD, ANN, story.now_ms)
    story.order = None
    story.core.orders_changed()
    story.order = replace(ORDER, migration="m2", world="00000000")
    first, second = story.came()[0], story.came()[0]
    assert [story.step(), story.step()] == [[first], []]
    story.core.reported(WORLD, ANN, story.now_ms)
    assert story.step() == [], "it is connected to the other one still"
    story.core.reported("00000000", ANN, story.now_ms)
    assert story.step() == [second]


def test_a_user_that_is_not_seen_on_green_stays_on_blue_and_is_listed_until_green_reports_it() -> None:
    """Rule 22: two refused logins at one server end a Go client, so the others are not sent after the scouts."""
    story = Story()
    numbers = [story.came()[0] for _ in range(6)]
    sent = []
    for _ in range(SCOUTS_MAX):
        sent += story.step()
        story.went(sent[-1])
        assert story.step() == []
        story.now_ms += SCOUT_MS
    assert sent == numbers[:SCOUTS_MAX]
    assert story.step() == []
    assert list(story.core.failing) == [ANN]
    waiting = story.core.tracked[numbers[-1]]
    assert story.state(numbers[-1]) is State.BRIDGED
    assert story.core.why(waiting) == "green has not reported the user"
    told = counted(story.core, [("A", connected(waiting.facts.id, "c"))], {})
    assert (told["A"].failing, told["A"].waiting) == (("ann",), 0)
    story.core.reported(WORLD, ANN, story.now_ms)
    assert story.step() == numbers[SCOUTS_MAX:]
    assert list(story.core.failing) == []


def test_a_scout_that_comes_back_says_nothing_about_green_and_the_next_one_is_sent_at_once() -> None:
    """Many clients try any server that they know; that is bounded all the same."""
    story = Story()
    for number in range(20):
        story.came(name=f"c{number}")
    sent = 0
    while story.core.users.get(ANN, Scouting()).stage is not Stage.FAILING:
        (number,) = story.step()
        sent += 1
        name = story.core.tracked[number].facts.likeness.name
        story.went(number)
        story.now_ms += 2000
        assert story.came(name=name)[1] is Verdict.SERVE
    assert sent == RETURNS_MAX + SCOUTS_MAX


def test_what_green_says_before_the_order_counts() -> None:
    story = Story()
    order, story.order = story.order, None
    story.core.reported(WORLD, ANN, 0)
    story.order = order
    numbers = [story.came()[0] for _ in range(3)]
    assert story.step() == numbers[:1]
    assert story.step() == numbers[1:]


def test_a_client_that_comes_back_is_served_and_asked_when_it_is_quiet_three_times_in_all() -> None:
    """Rule 20."""
    story = Story()
    story.core.reported(WORLD, ANN, 0)
    number, _ = story.came()
    for asked in (1, 2, 3):
        assert story.step(AGAIN_MS) == [number]
        story.went(number)
        number = story.comes_back()
        assert story.step() == [], "not at once"
        if asked < 3:
            assert story.state(number) is State.RETURNED
            story.activity[number] = Activity.ACTIVE
            assert story.step(AGAIN_MS) == []
            story.activity[number] = Activity.QUIET
    assert story.step(10 * AGAIN_MS) == []
    assert story.state(number) is State.BRIDGED
    assert story.core.why(story.core.tracked[number]) == "it came back 3 times"
    assert story.core.counts == {"asked": 3, "gone": 3, "returned": 3, "refused": 3}


def test_a_client_that_comes_back_only_after_two_seconds_knows_no_other_server_and_is_served_at_once() -> (
    None
):
    story = Story()
    number, _ = story.came()
    assert story.step() == [number]
    story.went(number)
    story.now_ms += 2000
    assert not story.is_refused()
    again, verdict = story.came()
    assert (verdict, story.state(again)) == (Verdict.SERVE, State.RETURNED)


def test_a_client_that_another_broker_of_blue_sent_away_is_refused_once_here_too() -> None:
    """It tries the servers that it knows in any order. One that is served here never shows whether green takes its user."""
    story = Story()
    story.core.left("A", "10.1.1.1", story.now_ms)
    story.core.left("B", "10.1.1.2", story.now_ms)
    assert not story.is_refused("10.1.1.2"), "no order is about its account"
    assert [story.is_refused(), story.is_refused()] == [True, False]
    assert story.came()[1] is Verdict.SERVE
    story.core.left("A", "10.1.1.1", story.now_ms)
    story.now_ms += 2000
    assert not story.is_refused(), "it knows no other server"


def test_a_client_that_came_back_and_is_never_quiet_is_asked_all_the_same() -> None:
    story = Story()
    story.core.reported(WORLD, ANN, 0)
    number, _ = story.came()
    assert story.step() == [number]
    story.went(number)
    number = story.comes_back()
    story.activity[number] = Activity.ACTIVE
    assert story.step(RESTLESS_MS - 1) == []
    story.activity[number] = Activity.UNSETTLED
    assert story.step() == []
    story.activity[number] = Activity.ACTIVE
    assert story.step() == [number]


def test_a_client_that_comes_after_a_minute_or_is_another_one_is_new() -> None:
    story = Story()
    number, _ = story.came()
    assert story.step() == [number]
    story.went(number)
    assert story.came(name="other")[1] is Verdict.SERVE
    story.now_ms += FORGET_MS
    again, verdict = story.came()
    assert (verdict, story.core.tracked[again].asks) == (Verdict.SERVE, 0)


def test_a_client_that_waits_for_answers_is_left_alone_for_a_bounded_time() -> None:
    story = Story()
    busy, _ = story.came()
    story.activity[busy] = Activity.UNSETTLED
    assert story.step() == []
    quiet, _ = story.came()
    assert story.step() == [quiet], "the next one of the user goes first instead"
    story.core.reported(WORLD, ANN, story.now_ms)
    assert story.step() == []
    assert story.step(PATIENCE_MS) == [busy]


@pytest.mark.covers("SF-22")
def test_a_client_whose_publishes_are_overdue_is_not_asked_before_they_are_stored() -> None:
    """With the link cut, what it sends to green would be stored first."""
    story = Story()
    number, _ = story.came()
    story.activity[number] = Activity.OVERDUE
    assert story.step() == []
    assert story.step(PATIENCE_MS) == []
    story.activity[number] = Activity.ACTIVE
    assert story.step() == [number]


def test_the_wait_for_overdue_publishes_is_bounded() -> None:
    story = Story()
    number, _ = story.came()
    story.activity[number] = Activity.OVERDUE
    assert story.step() == []
    assert story.step(OVERDUE_PATIENCE_MS) == [number]


def test_a_publisher_at_a_rate_need_not_be_quiet_the_first_time() -> None:
    story = Story()
    number, _ = story.came()
    story.activity[number] = Activity.ACTIVE
    assert story.step() == [number]


def test_the_pace_is_bounded() -> None:
    story = Story()
    story.core.reported(WORLD, ANN, 0)
    for _ in range(4 * PER_S):
        story.came()
    story.step()
    asked = sum(len(story.step()) for _ in range(20))
    assert asked == 2 * PER_S
    assert len(story.step(60_000)) == PER_S, "time that nobody used counts for a second at most"


def test_the_operator_the_system_and_other_accounts_are_never_asked() -> None:
    """BG-8."""
    story = Story(replace(ORDER, phase=Phase.CLOSED))
    assert story.came(is_internal=True)[1] is Verdict.SERVE
    assert story.came(User("B", "ann"))[1] is Verdict.SERVE
    assert (story.core.tracked, story.step()) == ({}, [])
    story.core.adopt(Facts(9, Likeness(ANN, "", "", ""), is_internal=True), 0)
    assert story.core.tracked == {}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"is_websocket": True}, "WebSocket clients take no addresses from INFO"),
        ({"takes_info": False}, "the client takes no INFO after the first one (protocol 0)"),
        ({"is_tls": True}, "green has no TLS address by name"),
    ],
)
def test_clients_that_cannot_be_redirected_stay_and_are_listed(more: dict[str, Any], why: str) -> None:
    """BG-5, rule 21: an address is verified against the name of blue's server."""
    story = Story(replace(ORDER, tls_urls=("10.0.0.1:4222", "[::1]:4222")))
    number, verdict = story.came(**more)
    tracked = story.core.tracked[number]
    assert (verdict, story.state(number), story.core.why(tracked)) == (Verdict.SERVE, State.BRIDGED, why)
    assert story.core.reach(tracked) is Reach.CANNOT
    assert story.step() == []
    story.order = replace(ORDER, policy=Policy.REFUSE)
    assert story.came(**{**more, "is_tls": False, "is_websocket": True})[1] is Verdict.REFUSE
    story.order = replace(ORDER, phase=Phase.CLOSED)
    story.core.orders_changed()
    assert story.step() == [number], "nobody is served behind the end"


def test_tls_clients_are_told_names_and_others_what_is_for_them() -> None:
    """Rule 21."""
    assert ORDER.urls_for(is_tls=True) == ["green-0.example:4222"]
    assert ORDER.urls_for(is_tls=False) == ["green-0:4222", "green-1:4222"]


def test_while_green_is_only_announced_nobody_is_asked() -> None:
    story = Story(replace(ORDER, phase=Phase.ANNOUNCE))
    number, verdict = story.came()
    assert (verdict, story.step()) == (Verdict.SERVE, [])
    assert story.core.reach(story.core.tracked[number]) is Reach.MAY
    story.order = ORDER
    story.core.orders_changed()
    assert story.step() == [number]


def test_an_order_that_is_taken_back_leaves_all_where_they_are() -> None:
    story = Story()
    story.came()
    story.order = None
    story.core.orders_changed()
    assert (story.core.tracked, story.core.users, story.step()) == ({}, {}, [])


def test_those_that_are_connected_when_the_order_comes_are_taken_in() -> None:
    story = Story()
    story.core.adopt(Facts(1, Likeness(ANN, "", "", "")), 0)
    story.core.adopt(Facts(1, Likeness(ANN, "", "", "")), 0)
    assert story.step() == [1]


def test_by_policy_new_clients_of_a_user_that_green_knows_are_told_and_then_refused() -> None:
    story = Story(replace(ORDER, policy=Policy.REFUSE))
    assert story.came(name="early")[1] is Verdict.SERVE, "nobody knows yet whether green takes the user"
    story.core.reported(WORLD, ANN, 0)
    number, verdict = story.came(name="late")
    assert verdict is Verdict.TELL, "it need not know green"
    story.went(number)
    assert [story.is_refused() for _ in range(6)] == [True] * 5 + [False]
    assert story.came(name="late")[1] is Verdict.SERVE, "it may be unable to reach green"
    story.went(story.last_id)
    assert story.came(name="late", is_websocket=True)[1] is Verdict.REFUSE


def test_behind_the_end_nobody_is_served() -> None:
    story = Story()
    story.core.reported(WORLD, ANN, 0)
    number, _ = story.came()
    assert story.step() == [number]
    story.went(number)
    bridged = story.comes_back()
    story.activity[bridged] = Activity.UNSETTLED
    story.order = replace(ORDER, phase=Phase.CLOSED)
    story.core.orders_changed()
    assert story.step() == [bridged]
    story.went(bridged)
    assert [story.is_refused() for _ in range(6)] == [True] * 5 + [False]
    assert [story.came()[1] for _ in range(20)] == [Verdict.REFUSE] * 20
    number, verdict = story.came(name="new")
    assert verdict is Verdict.TELL
    story.went(number)
    assert story.came(name="new")[1] is Verdict.REFUSE


def test_every_stage_of_a_user_has_a_way_out_once_green_reports_it() -> None:
    for stage in Stage:
        found = Scouting(stage)
        found.reported(0)
        assert found.stage is Stage.SEEN
    assert {event for _, event in TABLE} == set(Event)


def test_departures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supercluster.broker.net.clients.redirect.departures.DEPARTURES_MAX", 3)
    found = Departures()
    likeness = [Likeness(ANN, str(number), "", "") for number in range(5)]
    for each in likeness:
        found.add(each, Departure(1, 0))
    assert len(found) == 3
    assert [found.take(each, 0) is not None for each in likeness] == [False, False, True, True, True]
    assert len(found) == 0


def test_refusals_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supercluster.broker.net.clients.redirect.refusals.ADDRESSES_MAX", 2)
    found = Refusals()
    for address in ("a", "b", "c"):
        found.allow(address, 1, 100)
    assert [found.take(address, 99) for address in ("a", "b", "c", "c")] == [False, True, True, False]
    found.allow("b", 2, 100)
    found.allow("b", 1, 200)
    assert [found.take("b", now_ms) for now_ms in (99, 100, 100)] == [True, True, False]
    assert len(found) == 0


@pytest.mark.covers("BG-12")
def test_other_brokers_are_told_who_is_here_who_stays_and_who_publishes() -> None:
    """With an order or without."""
    story = Story()
    number, _ = story.came(ANN, "clock")
    web, _ = story.came(BOB, "page", is_websocket=True)
    here: list[tuple[str, Any]] = [
        ("A", connected(number, "clock", uses_tls=True)),
        ("A", connected(web, "page", user="bob", is_websocket=True)),
        ("B", connected(9, "", language="go", wants_info=False)),
    ]
    crossings = Crossings()
    crossings.add("A", "ORDERS", [number, 9, 9, number])
    crossings.add("B", "TRAINS", [9])
    clock = Publishing("A", "ann", "clock", "python", "10.0.0.7", 2, ("ORDERS",))
    nameless = Publishing("B", "ann", "", "go", "10.0.0.7", 2, ("ORDERS",))
    own = replace(nameless, messages=1, streams=("TRAINS",))
    assert counted(story.core, here, crossings.with_waiting([])) == {
        "A": AccountClients(2, 1, 1, 2, ("page",), ("page",), (clock, nameless), tls=1),
        "B": AccountClients(1, 1, 1, 1, ("a go client",), ("a go client",), (own,)),
    }, "by the streams' account, which a client of another one reaches by imports"
