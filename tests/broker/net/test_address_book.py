"""What is known of brokers in other clusters: who vouches for it, what is tried first, what is forgotten."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.net.links import address_book
from supercluster.broker.net.links.address_book import ADDRESSES_MAX, BROKERS_MAX, FORGET_MS, AddressBook
from supercluster.broker.protocol.frames import GatewayAddress


def entry(node: str, url: str, cluster: str = "west") -> GatewayAddress:
    return GatewayAddress(node, cluster, url)


def book() -> AddressBook:
    return AddressBook("east-0", "east")


def addresses(found: AddressBook, node: str) -> tuple[str, ...]:
    return next((shown.addresses for shown in found.shown() if shown.node == node), ())


def test_brokers_of_other_clusters_are_learnt_and_own_ones_passed_over() -> None:
    found = book()
    found.on_addresses(
        "west-0",
        [entry("west-1", "w1:7222"), entry("east-1", "e1:7222", "east"), entry("east-0", "x:1", "north")],
    )
    assert found.nodes == ["west-1"]
    assert found.cluster_of("west-1") == "west"
    assert found.next_address("west-1") == "w1:7222"
    assert found.next_address("west-2") is None


def test_the_newest_address_is_tried_first_and_a_failing_one_last() -> None:
    found = book()
    found.said_itself("west-0", "west", "old:7222")
    found.said_itself("west-0", "west", "new:7222")
    assert found.next_address("west-0") == "new:7222"
    found.failed("west-0", "new:7222", "refused", 0)
    assert found.next_address("west-0") == "old:7222"
    found.failed("west-0", "old:7222", "refused", 0)
    assert found.next_address("west-0") == "new:7222"
    found.worked("west-0", "old:7222")
    assert found.next_address("west-0") == "old:7222"


def test_an_address_that_nobody_vouches_for_is_forgotten_after_the_bound() -> None:
    found = book()
    found.on_addresses("west-1", [entry("west-0", "w0:7222")])
    found.failed("west-0", "w0:7222", "refused", 0)
    found.failed("west-0", "w0:7222", "refused", 2 * FORGET_MS)
    assert addresses(found, "west-0") == ("w0:7222",), "west-1 is linked with it right now"
    found.teller_lost("west-1")
    found.failed("west-0", "w0:7222", "refused", 2 * FORGET_MS + 1)
    assert found.nodes == []


def test_an_address_that_works_in_between_is_kept() -> None:
    found = book()
    found.said_itself("west-0", "west", "w0:7222")
    found.failed("west-0", "w0:7222", "refused", 0)
    found.worked("west-0", "w0:7222")
    found.failed("west-0", "w0:7222", "refused", FORGET_MS)
    found.failed("west-0", "w0:7222", "refused", 2 * FORGET_MS - 1)
    assert found.nodes == ["west-0"]
    found.failed("west-0", "w0:7222", "refused", 2 * FORGET_MS)
    assert found.nodes == []


def test_what_a_teller_says_replaces_what_it_said_before() -> None:
    found = book()
    found.on_addresses("west-1", [entry("west-0", "w0:7222")])
    found.on_addresses("west-1", [])
    found.failed("west-0", "w0:7222", "refused", 0)
    found.failed("west-0", "w0:7222", "refused", FORGET_MS)
    assert found.nodes == []


def test_two_claims_on_a_name_are_shown_and_the_broker_itself_has_the_last_word() -> None:
    found = book()
    found.said_itself("b-0", "west", "w:7222")
    found.on_addresses("north-0", [entry("b-0", "n:7222", "north")])
    assert "north-0 says that b-0 is of cluster north" in found.conflicts["b-0"]
    assert addresses(found, "b-0") == ("w:7222",)
    found.on_addresses("north-0", [])
    assert found.conflicts == {}, "it does not say so any more"
    found.on_addresses("north-0", [entry("b-0", "n:7222", "north")])
    found.said_itself("b-0", "north", "n:7222")
    assert (found.cluster_of("b-0"), addresses(found, "b-0"), found.conflicts) == ("north", ("n:7222",), {})


def test_nonsense_is_ignored() -> None:
    found = book()
    found.on_addresses("west-1", [entry("w 0", "w:7222"), entry("w0", "nowhere"), entry("w0", "w:1", "a.b")])
    found.said_itself("west-0", "west", "")
    assert found.nodes == []


def test_no_more_brokers_and_addresses_are_kept_than_the_bounds() -> None:
    found = book()
    found.on_addresses("west-1", [entry(f"n-{number}", "w:7222") for number in range(BROKERS_MAX + 5)])
    assert len(found.nodes) == BROKERS_MAX
    found = book()
    found.on_addresses("west-1", [entry("w", "told:7222")])
    for number in range(ADDRESSES_MAX + 3):
        found.said_itself("w", "west", f"w:{7000 + number}")
    kept = addresses(found, "w")
    assert len(kept) == ADDRESSES_MAX
    assert "told:7222" in kept, "what a linked broker vouches for outlives what was said once"
    assert f"w:{7000 + ADDRESSES_MAX + 2}" in kept


NODES = st.sampled_from(["a-0", "b-0", "c-0", "east-0"])
URLS = st.sampled_from(["h:1", "h:2", "h:3", "h:4", "h:5", "bad"])
TOLD = st.lists(
    st.builds(GatewayAddress, NODES, st.sampled_from(["west", "north", "east"]), URLS), max_size=4
)
Step = tuple[str, str, list[GatewayAddress]]
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("told"), NODES, TOLD),
    st.tuples(st.just("lost"), NODES, st.just([])),
    st.tuples(st.just("itself"), NODES, TOLD),
    st.tuples(st.just("fails"), NODES, st.just([])),
)


@given(st.lists(STEPS, max_size=40))
def test_whatever_is_said_the_book_stays_bounded_and_every_broker_has_an_address(
    steps: list[Step],
) -> None:
    found = book()
    now_ms = 0
    for what, node, told in steps:
        if what == "told":
            found.on_addresses(node, told)
        elif what == "lost":
            found.teller_lost(node)
        elif what == "itself":
            for said in told:
                if said.node != "east-0" and said.cluster != "east":
                    found.said_itself(said.node, said.cluster, said.url)
        else:
            now_ms += address_book.FORGET_MS // 2
            address = found.next_address(node)
            if address is not None:
                found.failed(node, address, "refused", now_ms)
        for shown in found.shown():
            assert shown.node != "east-0"
            assert shown.cluster != "east"
            assert 1 <= len(shown.addresses) <= ADDRESSES_MAX
            assert found.next_address(shown.node) in shown.addresses
