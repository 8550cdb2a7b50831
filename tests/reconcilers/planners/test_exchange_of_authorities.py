"""Another authority while brokers run: whatever happens in whatever order, any two brokers can link at any moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.reconcilers.builders import NOW, cluster, super_cluster
from tests.support.tiers import examples

from supercluster.api.super_cluster import EXCHANGE_AUTHORITY
from supercluster.reconcilers.planners.cluster.certificates import (
    AUTHORITY_LIFETIME,
    AuthorityView,
    CertificatesView,
    CertificateView,
    LoadedView,
    MarksView,
    plan_certificates,
    why_waiting,
)
from supercluster.reconcilers.planners.plan import (
    CLUSTER_ANNOTATION,
    IDENTITY_ANNOTATION,
    ExchangeAuthority,
    IssueCertificate,
    MakeAuthority,
    Manifest,
    Stage,
    Step,
)

CLUSTERS = (cluster("east"), cluster("west"))
BROKERS = {each.metadata.name: frozenset(f"{each.metadata.name}-{n}" for n in range(2)) for each in CLUSTERS}


def marks(manifest: Manifest) -> MarksView:
    metadata = manifest["metadata"]
    annotations = metadata["annotations"]
    cluster = annotations.get(CLUSTER_ANNOTATION, "")
    return MarksView(metadata["labels"], annotations[IDENTITY_ANNOTATION], cluster)


@dataclass
class Secrets:
    """The Secrets of a super-cluster, and what its brokers have loaded of them. Fingerprints are numbers that are used once."""

    asked: str = ""
    now_days: int = 0
    authority: AuthorityView | None = None
    written: dict[str, list[CertificateView]] = field(default_factory=dict)
    """By cluster, all that was ever in its Secret."""
    there: dict[str, CertificateView] = field(default_factory=dict)
    loaded: dict[str, tuple[str, int]] = field(default_factory=dict)
    """By broker, what it has loaded of that."""
    made: int = 0

    @property
    def desired(self) -> Any:
        return super_cluster(meta={"annotations": {EXCHANGE_AUTHORITY: self.asked}}, tls={})

    @property
    def now(self) -> Any:
        return NOW + timedelta(days=self.now_days)

    def view(self) -> CertificatesView:
        loaded = {
            broker: (LoadedView(each.fingerprint, each.authorities),) * 2
            for broker, each in self.shown().items()
        }
        return CertificatesView(self.authority, dict(self.there), BROKERS, loaded)

    def shown(self) -> Mapping[str, CertificateView]:
        return {broker: self.written[name][version] for broker, (name, version) in self.loaded.items()}

    def plan(self) -> tuple[Step, ...]:
        return plan_certificates(self.desired, self.view(), CLUSTERS, self.now)

    def new(self, what: str) -> str:
        self.made += 1
        return f"{what}-{self.made}"

    def carry_out(self, step: Step) -> None:
        """As the executor does, which looks once more at what it changes."""
        match step:
            case MakeAuthority(signed=signed):
                self._make(step, signed)
            case IssueCertificate():
                self._issue(step)
            case ExchangeAuthority():
                self._exchange(step)

    def _make(self, step: MakeAuthority, signed: tuple[str, ...]) -> None:
        known: dict[str, None] = {}
        for each in (
            self.there[name.removesuffix("-tls")]
            for name in signed
            if name.removesuffix("-tls") in self.there
        ):
            known |= dict.fromkeys((each.issuer, *sorted(each.authorities)))
        new, ends = self.new("ca"), self.now + AUTHORITY_LIFETIME
        if self.authority is not None:
            return
        found = marks(step.manifest)
        if known:
            first, *others = known
            self.authority = AuthorityView(first, ends, False, new, frozenset(others), marks=found)
        else:
            self.authority = AuthorityView(new, ends, marks=found)

    def _issue(self, step: IssueCertificate) -> None:
        name = step.manifest["metadata"]["labels"]["supercluster.dev/cluster"]
        if self.authority is None or (step.is_new and step.signer != self.authority.signer):
            return
        there = self.there.get(name)
        if step.is_new or there is None:
            there = CertificateView(
                self.new("leaf"),
                self.authority.signer,
                frozenset(),
                frozenset(step.names),
                self.now + step.lifetime,
                marks(step.manifest),
            )
        self.there[name] = replace(there, authorities=self.authority.trusted)
        self.written.setdefault(name, []).append(self.there[name])

    def _exchange(self, step: ExchangeAuthority) -> None:
        known = self.authority
        if known is None or (known.issuer, known.trusted) != (step.issuer, step.trusted):
            return
        if step.stage is Stage.INTRODUCE:
            self.authority = replace(known, next=self.new("ca"), asked=step.asked)
        elif why_waiting(self.view()):
            return
        elif step.stage is Stage.PROMOTE:
            former, ends = known.former | {known.issuer}, self.now + AUTHORITY_LIFETIME
            self.authority = replace(
                known, issuer=known.next, not_after=ends, has_key=True, next="", former=former
            )
        else:
            self.authority = replace(known, former=frozenset())

    def load(self, broker: str, share: float) -> None:
        """A broker reads its files: nothing older than what it has."""
        name = broker.partition("-")[0]
        if name in self.written:
            oldest = self.loaded.get(broker, (name, len(self.written[name]) - 1))[1]
            self.loaded[broker] = name, oldest + round(share * (len(self.written[name]) - 1 - oldest))

    def cut_off(self) -> list[str]:
        """Pairs of which one refuses the other."""
        shown = self.shown()
        return [
            f"{one} shows what {a.issuer} signed, and {other} trusts {sorted(b.authorities)}"
            for one, a in shown.items()
            for other, b in shown.items()
            if a.issuer not in b.authorities
        ]

    def settle(self) -> None:
        for _ in range(40):
            steps = self.plan()
            for step in steps[:1]:
                self.carry_out(step)
            for broker in sorted(BROKERS["east"] | BROKERS["west"]):
                self.load(broker, 1.0)
            assert not self.cut_off()
            if not steps and not self.plan():
                return
        raise AssertionError("the exchange does not come to an end")


def test_an_exchange_that_is_asked_for_is_made_once_with_every_broker_asked_between_its_stages() -> None:
    world = Secrets()
    world.settle()
    before = world.authority
    assert before is not None
    world.asked = "monday"
    (first,) = world.plan()
    assert isinstance(first, ExchangeAuthority)
    assert first.stage is Stage.INTRODUCE
    world.carry_out(first)
    for step in world.plan():
        assert isinstance(step, IssueCertificate)
        assert not step.is_new, "certificates stay, and whom to trust is written beside them"
        world.carry_out(step)
    assert world.plan() == ()
    for broker in ("east-0", "east-1", "west-0"):
        world.load(broker, 1.0)
    assert world.plan() == ()
    assert (
        why_waiting(world.view())
        == "waiting until all brokers say that they trust both authorities; not yet: west-1"
    )
    world.settle()
    after = world.authority
    assert after is not None
    assert (after.issuer != before.issuer, after.next, after.former, after.has_key) == (
        True,
        "",
        frozenset(),
        True,
    )
    assert {each.issuer for each in world.there.values()} == {after.issuer}
    world.settle()
    assert world.authority == after


def test_an_authority_is_exchanged_before_it_ends() -> None:
    world = Secrets()
    world.settle()
    before = world.authority
    assert before is not None
    world.now_days = 3653 * 2 // 3 - 1
    world.settle()
    assert world.authority is not None
    assert world.authority.issuer == before.issuer
    world.now_days += 2
    world.settle()
    assert world.authority.issuer != before.issuer


@pytest.mark.parametrize(
    "loaded", [None, {}, {"west-1": ()}], ids=["nobody says", "it is not ready", "it is older"]
)
def test_a_broker_that_does_not_say_what_it_has_loaded_holds_the_exchange(loaded: Any) -> None:
    world = Secrets()
    world.settle()
    world.asked = "monday"
    for _ in range(3):
        for step in world.plan():
            world.carry_out(step)
    for broker in sorted(BROKERS["east"] | BROKERS["west"]):
        world.load(broker, 1.0)
    view = world.view()
    assert view.loaded is not None
    assert plan_certificates(world.desired, view, CLUSTERS, world.now)
    others = {name: each for name, each in view.loaded.items() if name != "west-1"}
    silent = replace(view, loaded={**others, **loaded} if loaded is not None else None)
    assert plan_certificates(world.desired, silent, CLUSTERS, world.now) == ()
    assert "west-1" in why_waiting(silent)


def test_certificates_of_an_authority_whose_secret_was_deleted_are_trusted_until_none_is_shown() -> None:
    world = Secrets()
    world.settle()
    lost = world.authority
    assert lost is not None
    world.authority = None
    (step,) = world.plan()
    world.carry_out(step)
    made = world.authority
    assert made is not None
    assert made.trusted > {lost.issuer}
    assert not made.has_key
    world.settle()
    assert lost.issuer not in world.authority.trusted


Event = tuple[str, int, float]
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "round",
                "round",
                "plan",
                "carry out",
                "load",
                "load all",
                "restart",
                "ask",
                "wait",
                "lose",
                "delete",
            ]
        ),
        st.integers(0, 3),
        st.floats(0, 1),
    ),
    min_size=20,
    max_size=60,
)


LATE_ISSUE = ("delete", "plan", "round", "lose", "round", "carry out", "load")
LATE_PROMOTION = ("ask", "round", "load all", "plan", "round", "load all", "carry out")
"""Steps of plans that were made before another operator went on."""


@pytest.mark.covers("CL-3", "CL-5")
@settings(max_examples=examples(150, 3000), deadline=None)
@given(EVENTS)
@example([(what, 3 if what == "round" else 0, 1.0) for what in LATE_ISSUE])
@example([(what, 3 if what == "round" else 0, 1.0) for what in LATE_PROMOTION])
def test_no_order_of_events_leaves_two_brokers_that_refuse_each_other(events: list[Event]) -> None:
    world = Secrets()
    world.settle()
    brokers = sorted(BROKERS["east"] | BROKERS["west"])
    planned: list[Step] = []
    for what, number, share in events:
        match what:
            case "round":
                for _ in range(1 + number):
                    for step in world.plan():
                        world.carry_out(step)
            case "plan":
                planned = list(world.plan())
            case "carry out" if planned:
                # Of a plan that may be out of date by now; a process that is killed carries none out.
                world.carry_out(planned.pop(0))
            case "load":
                world.load(brokers[number], share)
            case "load all":
                for broker in brokers:
                    world.load(broker, 1.0)
            case "restart":
                world.load(brokers[number], 1.0)
            case "ask":
                world.asked = f"ask-{number}"
            case "wait":
                world.now_days += number * 400
            case "lose":
                # The authority's Secret is deleted; a cluster's own too would leave nobody who knows whom brokers trust.
                world.authority = None if len(world.there) == len(CLUSTERS) else world.authority
            case "delete" if world.authority is not None and world.authority.has_key:
                world.there.pop(CLUSTERS[number % 2].metadata.name, None)
        assert not world.cut_off()
    world.settle()
    assert world.authority is not None
    assert world.authority.trusted == {world.authority.issuer}
