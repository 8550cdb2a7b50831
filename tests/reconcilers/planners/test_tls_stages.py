"""TLS between brokers on and off while they run: whatever happens in whatever order, any two brokers can link, and no link is lost."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.reconcilers.builders import super_cluster
from tests.support.tiers import examples

from supercluster.api import SuperCluster
from supercluster.api.super_cluster import TlsStage, TlsStatus
from supercluster.reconcilers.planners.plan import SetTlsStage
from supercluster.reconcilers.planners.tls_stages import (
    STAGES,
    LinksView,
    TlsView,
    has_certificates,
    plan_tls,
    target_of,
    why_not,
)

ACCEPTS = {
    "Off": {"plain"},
    "AcceptBoth": {"plain", "tls"},
    "DialTls": {"plain", "tls"},
    "Required": {"tls"},
}
DIALS = {"Off": "plain", "AcceptBoth": "plain", "DialTls": "tls", "Required": "tls"}
FOUR = ("a-0", "a-1", "b-0", "b-1")
LINKED_BY_TLS = LinksView(frozenset({"DialTls"}), plain=0, encrypted=3)


def desired(
    mode: str | None = "Required", status: tuple[TlsStage, TlsStage] | None = ("Off", "Off"), **tls: str
) -> SuperCluster:
    told = {"tls": {"stage": status[0], "previous": status[1]}} if status is not None else {"tls": None}
    return super_cluster(status=told, **({"tls": {"mode": mode, **tls}} if mode is not None else {}))


def all_at(stage: str, plain: int = 0, encrypted: int = 0) -> TlsView:
    report = LinksView(frozenset({stage}), plain, encrypted)
    return TlsView(brokers=frozenset(FOUR), reports=dict.fromkeys(FOUR, report))


def goal_of(resource: SuperCluster, view: TlsView) -> str:
    step = plan_tls(resource, view).step
    return step.goal if step is not None else ""


def test_each_stage_begins_when_every_broker_reports_the_one_before() -> None:
    assert goal_of(desired(), all_at("Off")) == "AcceptBoth"
    assert goal_of(desired(status=("AcceptBoth", "Off")), all_at("AcceptBoth", plain=3)) == "DialTls"
    assert goal_of(desired(status=("DialTls", "AcceptBoth")), all_at("DialTls", encrypted=3)) == "Required"
    assert plan_tls(desired(status=("Required", "DialTls")), TlsView()).step is None
    off = {"Required": "DialTls", "DialTls": "AcceptBoth", "AcceptBoth": "Off"}
    for stage in ("Required", "DialTls", "AcceptBoth"):
        resource = desired("Off", (stage, stage))
        assert goal_of(resource, all_at(stage)) == off[stage]


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (None, "a-1 is not ready, or its image does not report its links and has to be updated"),
        (LinksView(frozenset({"AcceptBoth"})), "a-1 reports AcceptBoth"),
        (LinksView(frozenset({"AcceptBoth", "DialTls"})), "a-1 reports AcceptBoth and DialTls"),
        (LinksView(frozenset({"DialTls"}), plain=1), "a-1 has 1 plain links"),
    ],
)
def test_a_broker_that_is_not_there_yet_is_named(report: LinksView | None, why: str) -> None:
    view = all_at("DialTls", encrypted=3)
    reports = {name: each for name, each in view.reports.items() if name != "a-1"}
    view = replace(view, reports=reports | ({"a-1": report} if report is not None else {}))
    plan = plan_tls(desired(status=("DialTls", "AcceptBoth")), view)
    assert plan.step is None
    assert plan.waiting.endswith(f"DialTls: {why}")


def test_links_with_tls_hold_up_the_stage_that_accepts_none() -> None:
    plan = plan_tls(desired("Off", ("AcceptBoth", "DialTls")), all_at("AcceptBoth", encrypted=1))
    assert (plan.step, "links with TLS" in plan.waiting) == (None, True)


def test_nothing_begins_without_usable_certificates_or_during_a_migration() -> None:
    view = replace(all_at("Off"), unusable=("b-tls: it is not there",))
    assert "waiting for Secret b-tls: it is not there" in plan_tls(desired(), view).waiting
    view = replace(all_at("Off"), migrations=("over",))
    assert "Migration over" in plan_tls(desired(), view).waiting
    view = replace(all_at("AcceptBoth"), migrations=("over",))
    assert "Migration over" in plan_tls(desired("Off", ("AcceptBoth", "DialTls")), view).waiting
    assert goal_of(desired(status=("AcceptBoth", "Off")), view) == "DialTls", "both sides have certificates"
    assert "can be read" in plan_tls(desired(), replace(all_at("Off"), is_whole=False)).waiting


def test_back_goes_at_once_to_the_stage_it_came_from_and_no_further() -> None:
    half = replace(all_at("DialTls"), reports={"a-0": LINKED_BY_TLS})
    assert goal_of(desired("Off", ("DialTls", "AcceptBoth")), half) == "AcceptBoth"
    assert goal_of(desired("Off", ("AcceptBoth", "DialTls")), half) == ""
    assert goal_of(desired("Off", ("DialTls", "Required")), half) == ""


def test_a_new_super_cluster_begins_with_tls_and_one_with_brokers_keeps_what_it_has() -> None:
    for mode, stage in ((None, "Required"), ("Required", "Required"), ("Off", "Off")):
        status = plan_tls(desired(mode, None), TlsView()).status
        assert status is not None
        assert (status.stage, status.previous) == (stage, stage)
    told = plan_tls(desired(None, None), TlsView(told=frozenset({"Off"}))).status
    assert told == TlsStatus(stage="Off", previous="Off")
    told = plan_tls(desired("Required", None), TlsView(told=frozenset({"DialTls", "AcceptBoth"}))).status
    assert told == TlsStatus(stage="DialTls", previous="AcceptBoth"), "the status was lost on its way"
    assert plan_tls(desired(None, None), TlsView(is_whole=False)).status is None
    assert not has_certificates(desired(None))
    assert has_certificates(desired(None, ("Required", "Required")))


def test_removing_the_field_changes_nothing_and_what_has_begun_goes_on() -> None:
    def target(*status: TlsStage) -> str:
        return target_of(desired(None), TlsStatus(stage=status[0], previous=status[1]))

    assert target("Off", "Off") == target("Off", "AcceptBoth") == "Off"
    assert target("Required", "Required") == target("Required", "DialTls") == "Required"
    assert target("DialTls", "AcceptBoth") == target("AcceptBoth", "Off") == "Required"
    assert target("DialTls", "Required") == target("AcceptBoth", "DialTls") == "Off"


def test_the_issuer_in_use_stays_until_tls_is_off() -> None:
    plan = plan_tls(desired(status=("Required", "Required"), issuer="Secrets"), TlsView())
    assert "the certificates in use are of issuer Operator" in plan.refusal
    step = plan_tls(desired(issuer="Secrets"), all_at("Off")).step
    assert step is not None
    assert step.issuer == "Secrets"
    assert plan_tls(desired(issuer="Secrets"), all_at("Off")).refusal == ""


@dataclass
class Running:
    """Brokers, their links, and an operator with plans of before. A broker loads what its Cluster was told some time."""

    status: TlsStatus = field(default_factory=TlsStatus)
    mode: str | None = None
    told: dict[str, list[TlsStage]] = field(default_factory=lambda: {"a": ["Off"]})
    """By Cluster, all that its settings ever were."""
    loaded: dict[str, int] = field(default_factory=lambda: {"a-0": 0, "a-1": 0})
    away: set[str] = field(default_factory=set)
    links: dict[tuple[str, str], str] = field(default_factory=lambda: {("a-0", "a-1"): "plain"})
    plans: list[SetTlsStage] = field(default_factory=list)

    @property
    def desired(self) -> SuperCluster:
        return desired(self.mode, (self.status.stage, self.status.previous))

    def stage(self, broker: str) -> TlsStage:
        return self.told[broker[0]][self.loaded[broker]]

    def view(self) -> TlsView:
        reports = {}
        for name in set(self.loaded) - self.away:
            kinds = [kind for pair, kind in self.links.items() if name in pair]
            reports[name] = LinksView(frozenset({self.stage(name)}), kinds.count("plain"), kinds.count("tls"))
        return TlsView(brokers=frozenset(self.loaded), reports=reports)

    def plan(self) -> None:
        step = plan_tls(self.desired, self.view()).step
        if step is not None:
            self.plans.append(step)

    def carry_out(self, number: int) -> None:
        """The executor looks once more at what it changes."""
        if not self.plans:
            return
        step = self.plans[number % len(self.plans)]
        seen = (step.stage, step.previous) == (self.status.stage, self.status.previous)
        if seen and not why_not(self.status, step, self.view()):
            goal = next(each for each in STAGES if each == step.goal)
            self.status = TlsStatus(stage=goal, previous=self.status.stage)

    def tell(self, cluster: str) -> None:
        if cluster in self.told and self.told[cluster][-1] != self.status.stage:
            self.told[cluster].append(self.status.stage)

    def load(self, broker: str) -> None:
        """The next one that it was told; links that it dialled follow."""
        if broker not in self.loaded or broker in self.away:
            return
        if self.loaded[broker] + 1 < len(self.told[broker[0]]):
            self.loaded[broker] += 1
            kinds = {kind for pair, kind in self.links.items() if broker in pair}
            assert self.stage(broker) != "Required" or "plain" not in kinds, "a link is lost"
        self.check()

    def switch(self, broker: str) -> None:
        for pair in self.links:
            if pair[0] == broker and DIALS[self.stage(broker)] in ACCEPTS[self.stage(pair[1])]:
                self.links[pair] = DIALS[self.stage(broker)]

    def add(self) -> None:
        """A Cluster in the middle."""
        if "b" in self.told:
            return
        self.told["b"] = [self.status.stage]
        for name in ("b-0", "b-1"):
            self.loaded[name] = 0
        for pair in combinations(sorted(self.loaded), 2):
            self.links.setdefault(pair, DIALS[self.stage(pair[0])])
        self.check()

    def check(self) -> None:
        for one, other in combinations(sorted(self.loaded), 2):
            for dialler, dialled in ((one, other), (other, one)):
                assert DIALS[self.stage(dialler)] in ACCEPTS[self.stage(dialled)], (dialler, dialled)
        places = [STAGES.index(self.stage(name)) for name in self.loaded]
        assert max(places) - min(places) <= 1


OPERATIONS = st.one_of(
    st.tuples(st.just("mode"), st.sampled_from([None, "Required", "Off"])),
    st.tuples(st.just("plan"), st.none()),
    st.tuples(st.just("carry_out"), st.integers(0, 5)),
    st.tuples(st.just("tell"), st.sampled_from("ab")),
    st.tuples(st.just("load"), st.sampled_from(FOUR)),
    st.tuples(st.just("switch"), st.sampled_from(FOUR)),
    st.tuples(st.just("add"), st.none()),
    st.tuples(st.just("away"), st.sampled_from(FOUR)),
    st.tuples(st.just("everything"), st.none()),
)
UP = [("mode", "Required"), *[("everything", None)] * 4]


def run(world: Running, what: str, value: object) -> None:
    match what:
        case "mode":
            world.mode = str(value) if value is not None else None
        case "away":
            world.away ^= {str(value)}
        case "everything":
            world.plan()
            world.carry_out(len(world.plans) - 1)
            for each in "ab":
                world.tell(each)
            for each in FOUR * 3:
                world.load(each)
            for each in FOUR:
                if each in world.loaded:
                    world.switch(each)
        case "plan" | "add":
            getattr(world, what)()
        case "switch":
            if value in world.loaded:
                world.switch(str(value))
        case _:
            getattr(world, what)(value)


@pytest.mark.covers("CL-3", "OP-4")
@settings(max_examples=examples(100, 2_000), deadline=None)
@given(st.lists(OPERATIONS, max_size=60))
@example([*UP, ("mode", "Off"), *[("everything", None)] * 4])
@example([*UP[:3], ("mode", "Off"), ("plan", None), ("carry_out", 99), ("add", None), *UP])
def test_any_two_brokers_can_link_at_any_moment_and_it_comes_to_its_end(
    operations: list[tuple[str, object]],
) -> None:
    world = Running()
    for what, value in operations:
        run(world, what, value)
    world.away.clear()
    for mode, stage in (("Required", "Required"), ("Off", "Off")):
        world.mode = mode
        for _ in range(10):
            run(world, "everything", None)
        assert world.status.stage == stage
        assert {world.stage(name) for name in world.loaded} == {stage}
        assert set(world.links.values()) == {"tls" if stage == "Required" else "plain"}
