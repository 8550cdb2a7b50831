"""Two SuperClusters of one namespace: what their brokers are given so that blue's reach green's, and what is left alone (BG-1, SF-30)."""

from __future__ import annotations

import json
from base64 import b64decode
from posixpath import normpath
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import NS
from tests.reconcilers.kinds.test_migration_rounds import GREEN, GREEN_URL, OVER, Cutover

from supercluster.broker.settings import settings
from supercluster.reconcilers.planners.cluster.broker_config import CREDENTIALS_FOLDER
from supercluster.reconcilers.planners.cluster.manifests import TLS_FOLDER
from supercluster.reconcilers.ports import Key


class Twins(Cutover):
    """Blue is demo with Cluster east, green is next with Cluster west."""

    def __init__(self, *, blue_tls: bool = False, green_tls: bool = False, **migration: Any) -> None:
        super().__init__()
        modes = {True: {"mode": "Required"}, False: {"mode": "Off"}}
        self.change("SuperCluster", "demo", lambda body: body["spec"].update(tls=modes[blue_tls]))
        self.declare("SuperCluster", "next", migration=migration, tls=modes[green_tls])
        self.declare("Cluster", "west", superCluster="next")
        sides = self.brokers.migrations.sides
        sides["next"] = {**sides["demo"], "superCluster": "next", "identity": "id-green"}

    async def converge(self) -> None:
        """The brokers take over what they are told: a port that is in their settings is open."""
        for _ in range(4):
            await super().converge()
            told = self.config("west")["ports"].get("migration")
            self.brokers.migrations.sides["next"]["migrationPort"] = told

    def config(self, cluster: str) -> dict[str, Any]:
        data = self.kube.objects["ConfigMap", NS, f"{cluster}-config"]["data"]
        found: dict[str, Any] = json.loads(data["broker.json"])
        return found

    def file(self, super_cluster: str, name: str) -> str:
        data = self.kube.objects["Secret", NS, f"{super_cluster}-credentials"]["data"]
        return b64decode(data.get(name, "")).decode()

    def over(self) -> None:
        self.begin(green={"superCluster": "next"})


def ports_of(world: Twins, cluster: str) -> list[str]:
    ports = world.kube.objects["Service", NS, f"{cluster}-brokers"]["spec"]["ports"]
    return [port["name"] for port in ports]


@pytest.mark.covers("BG-1")
async def test_a_migration_opens_green_s_port_and_gives_blue_the_key_to_it() -> None:
    world = Twins()
    await world.converge()
    before = world.config("east")
    assert "migration" not in world.config("west")["ports"], "off by default"
    assert world.file("next", "migration.json") == ""
    world.over()
    await world.converge()
    assert world.config("west")["ports"]["migration"] == 7223
    assert ports_of(world, "west")[-1] == "migration"
    given = json.loads(world.file("next", "migration.json"))
    assert given["accept"] == [given["send"]]
    assert json.loads(world.file("demo", "migration.json")) == given, "each side shows it to the other"
    assert world.config("east") == before, "blue's brokers are not restarted for it"
    assert "migration" not in ports_of(world, "east")
    (started,) = world.brokers.migrations.started
    assert started["green"]["addresses"] == [
        f"west-{number}.west-brokers.{NS}.svc:7223" for number in range(3)
    ]


@pytest.mark.covers("BG-2")
async def test_a_second_green_is_refused_before_anything_is_written() -> None:
    """The first one has streams that were handed over, whatever became of its Migration: blue forwards to it for good."""
    world = Twins()
    await world.converge()
    world.over()
    await world.converge()
    given = world.file("demo", "migration.json")
    world.brokers.migrations.all_to("open")
    world.delete(OVER)
    await world.round(OVER)
    assert ("Migration", NS, "over") not in world.kube.objects
    world.brokers.migrations.sides["demo"]["greens"] = ["id-green"]
    world.begin("second", green=GREEN, approval="Manual")
    second = Key("Migration", NS, "second")
    world.brokers.migrations.sides[GREEN_URL]["identity"] = "id-third"
    for _ in range(3):
        await world.round(second)
    assert world.status(second)["phase"] == "Refused"
    message = condition(world.status(second), "PreflightPassed")["message"]
    assert "forward to the super-cluster with identity id-green" in message
    assert world.file("demo", "migration.json") == given
    world.brokers.migrations.sides["demo"]["greens"] = ["id-third"]
    await world.round(second)
    assert world.status(second)["phase"] != "Refused", "it is the one that blue is linked with"


async def test_the_port_stays_open_when_the_migration_is_gone_until_a_person_closes_it() -> None:
    world = Twins()
    world.over()
    await world.converge()
    world.kube.objects.pop(OVER_KEY)
    await world.converge()
    assert "migration" in world.config("west")["ports"], "closing it would restart the brokers once more"
    world.change("SuperCluster", "next", lambda body: body["spec"].update(migration={"enabled": False}))
    await world.converge()
    assert "migration" not in world.config("west")["ports"]


OVER_KEY = ("Migration", NS, "over")


async def test_a_green_that_takes_no_migrations_is_named() -> None:
    world = Twins(enabled=False)
    world.over()
    await world.converge()
    assert world.says("PreflightPassed") == ("Unknown", "MigrationPortClosed")
    assert "migration" not in world.config("west")["ports"]


async def test_a_port_can_be_opened_beforehand() -> None:
    world = Twins(enabled=True)
    await world.converge()
    assert world.config("west")["ports"]["migration"] == 7223


async def test_with_certificates_each_side_trusts_the_authorities_of_both() -> None:
    world = Twins(blue_tls=True, green_tls=True)
    await world.converge()
    before = world.config("east")
    assert normpath(f"{TLS_FOLDER}/../credentials") == CREDENTIALS_FOLDER
    assert before["migrationTls"]["caFile"] == "../credentials/migration-ca.crt"
    world.over()
    await world.converge()
    assert world.config("east") == before, "blue's brokers are not restarted for it"
    authorities = {
        b64decode(world.kube.objects["Secret", NS, f"{cluster}-tls"]["data"]["ca.crt"]).decode()
        for cluster in ("east", "west")
    }
    assert len(authorities) == 2
    for super_cluster, cluster in (("demo", "east"), ("next", "west")):
        text = world.file(super_cluster, "migration-ca.crt")
        assert all(each in text for each in authorities)
        tls = world.config(cluster)["migrationTls"]
        assert tls == {
            "certFile": "tls.crt",
            "keyFile": "tls.key",
            "caFile": "../credentials/migration-ca.crt",
        }
        settings.parse(world.config(cluster))
    assert "migration" not in world.config("east")["ports"]
    (started,) = world.brokers.migrations.started
    assert started["green"]["tlsName"] == f"brokers.next.{NS}.supercluster.internal"


async def test_a_blue_without_certificates_is_refused_by_a_green_that_asks_for_them() -> None:
    world = Twins(green_tls=True)
    world.over()
    await world.converge()
    assert world.says("PreflightPassed") == ("False", "PreflightRefused")
    assert "has no certificates to show" in world.message("PreflightPassed")


async def test_a_password_that_was_exchanged_is_shared_again_under_way() -> None:
    world = Twins()
    world.over()
    await world.converge()

    def forget(body: Any) -> None:
        body["data"].pop("migration.json")

    world.change("Secret", "demo-credentials", forget)
    await world.converge()
    assert json.loads(world.file("demo", "migration.json"))["send"]["user"] == "migration"


@pytest.mark.covers("SF-30")
@pytest.mark.parametrize(("name", "cluster"), [("demo", "east"), ("next", "west")])
async def test_neither_side_is_deleted_under_way(name: str, cluster: str) -> None:
    world = Twins()
    world.over()
    await world.converge()
    for key in (Key("SuperCluster", NS, name), Key("Cluster", NS, cluster)):
        world.delete(key)
    for _ in range(3):
        await world.round(Key("Cluster", NS, cluster))
        await world.round(Key("SuperCluster", NS, name))
    assert ("SuperCluster", NS, name) in world.kube.objects
    assert ("Cluster", NS, cluster) in world.kube.objects
    ready = condition(world.status(Key("SuperCluster", NS, name)), "Ready")
    assert ready["reason"] == "MigrationUnderWay"
    assert "spec.abort" in ready["message"]
    await world.look()
    assert world.says("Blocked")[0] == "True"
    world.edit(abort=True)
    await world.look()
    world.brokers.migrations.stages = {}
    await world.look()
    assert world.status(OVER)["phase"] == "Aborted"
    for _ in range(4):
        await world.round(Key("Cluster", NS, cluster))
        await world.round(Key("SuperCluster", NS, name))
    assert ("Cluster", NS, cluster) not in world.kube.objects
