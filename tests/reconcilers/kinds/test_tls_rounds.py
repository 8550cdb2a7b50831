"""Whole rounds in which TLS between brokers is turned on and off, with brokers that take over what they were told."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import CLUSTER, NS, SC, KilledError, World
from tests.support.tiers import every

from supercluster.reconcilers.planners.cluster.broker_config import stage_told
from supercluster.reconcilers.planners.tls_stages import STAGES

pytestmark = pytest.mark.covers("CL-3", "CL-6", "OP-4")


class Site(World):
    """`late` brokers stay as they are, whatever they are told."""

    def __init__(self, **tls: str) -> None:
        super().__init__()
        self.late: set[str] = set()
        self.stages: dict[str, str] = {}
        if tls:
            self.edit(**tls)

    def edit(self, **tls: str) -> None:
        self.change("SuperCluster", "demo", lambda body: body["spec"].update(tls=tls))

    def told(self) -> list[str]:
        """Stages, in the order in which they began."""
        return [
            note.message.split(";")[0].removeprefix("TLS between brokers: ")
            for note in self.kube.events
            if note.reason == "LinkEncryptionChanged"
        ]

    def load(self) -> None:
        """Brokers take over their settings, or are restarted to do so, and their links follow."""
        for cluster in ("east", "west"):
            config = self.kube.objects.get(("ConfigMap", NS, f"{cluster}-config"))
            if config is None:
                continue
            for number in range(3):
                name = f"{cluster}-{number}"
                if name not in self.late:
                    self.stages[name] = str(stage_told(config, None))
        for name, stage in self.stages.items():
            encrypted = stage in ("DialTls", "Required")
            counts = {"encrypted": 2 * encrypted, "plain": 2 * (not encrypted)}
            self.brokers.restart[name] = {"links": {"stages": {"cluster": stage, "gateway": stage}, **counts}}
        places = [STAGES.index(stage) for stage in self.stages.values()]
        assert max(places) - min(places) <= 1, self.stages

    async def settle(self, rounds: int = 1) -> None:
        for _ in range(rounds):
            await self.clock.advance(6_000)
            await self.converge()
            self.load()

    def stage(self) -> str:
        return str(self.status(SC)["tls"]["stage"])

    def template(self, cluster: str = "east") -> Any:
        return self.kube.objects[("StatefulSet", NS, cluster)]["spec"]["template"]


@pytest.fixture
async def plain() -> Site:
    site = Site(mode="Off")
    await site.settle(2)
    return site


async def test_a_new_super_cluster_begins_with_tls_and_says_so_before_a_broker_is_made() -> None:
    site = Site()
    await site.round(CLUSTER)
    assert ("ConfigMap", NS, "east-config") not in site.kube.objects
    await site.settle(2)
    assert site.status(SC)["tls"] == {"stage": "Required", "previous": "Required", "issuer": "Operator"}
    assert ("Secret", NS, "east-tls") in site.kube.objects
    assert set(site.stages.values()) == {"Required"}
    assert site.told() == []


async def test_tls_is_turned_on_and_off_by_stages_with_one_restart_each(plain: Site) -> None:
    assert ("Secret", NS, "east-tls") not in plain.kube.objects
    without = plain.template()
    plain.edit(mode="Required")
    await plain.settle()
    assert plain.stage() == "AcceptBoth"
    assert plain.template() != without
    mounted = plain.template()
    await plain.settle(5)
    assert plain.told() == ["AcceptBoth", "DialTls", "Required"]
    assert plain.template() == mounted, "only the first stage restarts brokers"
    assert condition(plain.status(SC), "Synced")["status"] == "True"
    plain.edit(mode="Off")
    await plain.settle(2)
    assert plain.template() == mounted
    await plain.settle(4)
    assert plain.told() == ["AcceptBoth", "DialTls", "Required", "DialTls", "AcceptBoth", "Off"]
    assert plain.template() == without
    assert plain.stage() == "Off"


async def test_a_super_cluster_of_before_stays_in_plain_until_somebody_asks(plain: Site) -> None:
    """As after an upgrade: the status has nothing of TLS, nor has the spec."""

    def forget(body: Any) -> None:
        del body["status"]["tls"], body["spec"]["tls"]

    plain.change("SuperCluster", "demo", forget)
    plain.restart()
    template = plain.template()
    await plain.round(CLUSTER)
    assert plain.template() == template
    await plain.settle(3)
    assert plain.stage() == "Off"
    assert plain.template() == template
    assert ("Secret", NS, "demo-authority") not in plain.kube.objects
    plain.edit()
    await plain.settle(6)
    assert plain.stage() == "Required"
    plain.change("SuperCluster", "demo", lambda body: body["spec"].pop("tls"))
    await plain.settle(3)
    assert plain.stage() == "Required", "no edit that does not name TLS takes it away"


async def test_a_broker_that_does_not_follow_is_named_and_holds_the_stage(plain: Site) -> None:
    plain.late = {"east-1"}
    plain.edit(mode="Required")
    await plain.settle(4)
    assert plain.stage() == "AcceptBoth"
    message = condition(plain.status(SC), "Synced")["message"]
    assert message.endswith("waiting until all brokers report the stage AcceptBoth: east-1 reports Off")
    plain.edit(mode="Off")
    await plain.settle(2)
    assert plain.told() == ["AcceptBoth", "Off"], "back at once"
    plain.brokers.restart["east-2"].pop("links")
    plain.late, plain.stages = {"east-2"}, {"east-0": "Off", "east-1": "Off"}
    plain.edit(mode="Required")
    await plain.settle()
    assert plain.stage() == "Off"
    message = condition(plain.status(SC), "Synced")["message"]
    assert message.endswith(
        "east-2 is not ready, or its image does not report its links and has to be updated"
    )


async def test_a_cluster_that_is_added_in_the_middle_is_waited_for(plain: Site) -> None:
    plain.edit(mode="Required")
    await plain.settle()
    plain.late = {"west-0"}
    plain.stages["west-0"] = "AcceptBoth"
    plain.declare("Cluster", "west", superCluster="demo")
    await plain.settle(4)
    assert plain.stage() == "DialTls"
    assert "west-0 reports AcceptBoth" in condition(plain.status(SC), "Synced")["message"]
    plain.late = set()
    await plain.settle(3)
    assert plain.stage() == "Required"
    assert set(plain.stages.values()) == {"Required"}


async def test_another_authority_is_asked_for_in_the_middle(plain: Site) -> None:
    note = {"supercluster.dev/exchange-authority": "monday"}
    plain.change(
        "SuperCluster", "demo", lambda body: body["metadata"].setdefault("annotations", {}).update(note)
    )
    plain.edit(mode="Required")
    await plain.settle(6)
    assert plain.stage() == "Required"
    assert "next.crt" in plain.secret("demo-authority"), "brokers do not say yet that they trust both"


async def test_a_secret_of_another_issuer_that_is_not_there_is_named_before_anything_begins(
    plain: Site,
) -> None:
    plain.edit(mode="Required", issuer="Secrets")
    await plain.settle(3)
    assert plain.stage() == "Off"
    message = condition(plain.status(SC), "Synced")["message"]
    assert "waiting for Secret east-tls: it is not there, and spec.tls.issuer is Secrets" in message


async def test_the_step_is_held_when_a_broker_says_otherwise_than_when_the_plan_was_made(plain: Site) -> None:
    plain.edit(mode="Required")
    await plain.settle()
    answers = iter([False])
    asked = type(plain.brokers).restart_states

    async def states(target: Any) -> Any:
        found = await asked(plain.brokers, target)
        if next(answers, True):
            found["east-2"]["links"]["stages"] = {"cluster": "Off"}
        return found

    plain.brokers.restart_states = states  # type: ignore[method-assign]
    plain.kube.show(plain.cache)
    await plain.round(SC)
    assert plain.stage() == "AcceptBoth"


@pytest.mark.parametrize("mode", ["Required", "Off"])
async def test_an_operator_that_is_killed_at_any_call_brings_it_to_its_end(mode: str) -> None:
    other = {"Required": "Off", "Off": "Required"}[mode]
    for call in range(0, 60, every(3)):
        site = Site(mode=other)
        await site.settle(2)
        site.edit(mode=mode)
        for step in range(5):
            if step == call % 5:
                site.die_at_call(call // 2)
            with suppress(KilledError):
                await site.settle()
            if step == call % 5:
                site.kube.fail = site.brokers.fail = lambda _: None
                site.restart()
            site.load()
        await site.settle(6)
        assert site.stage() == mode, call
        assert set(site.stages.values()) == {mode}, call


async def test_the_settings_that_brokers_get_are_those_of_the_stage(plain: Site) -> None:
    plain.edit(mode="Required")
    seen = {}
    for _ in range(5):
        await plain.settle()
        config = json.loads(plain.kube.objects[("ConfigMap", NS, "east-config")]["data"]["broker.json"])
        seen[plain.stage()] = [config[port].get("plain") for port in ("clusterTls", "gatewayTls")]
    assert seen == {"AcceptBoth": ["dialled"] * 2, "DialTls": ["accepted"] * 2, "Required": [None] * 2}
