"""Certificates from a manifest to the brokers' settings: what is made, what brokers read, and what survives whom."""

from __future__ import annotations

import itertools
import json
import ssl
from base64 import b64decode, b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.reconcilers.builders import NAMESPACE as NS
from tests.reconcilers.builders import clone, condition
from tests.reconcilers.handlers.test_rounds import CLUSTER, SC, KilledError, World
from tests.support.certificates import Authority

from supercluster.broker.net.clients.certificates import GatewayCertificates
from supercluster.broker.settings import settings
from supercluster.reconcilers.execute import certificates
from supercluster.reconcilers.execute.executor import Executor
from supercluster.reconcilers.planners.cluster.manifests import TLS_FOLDER
from supercluster.reconcilers.planners.plan import ExchangeAuthority, Stage
from supercluster.reconcilers.ports import Key, KubeError


@pytest.fixture
def world() -> World:
    made = World()
    # OpenSSL judges by the machine's clock.
    made.clock.ms = (datetime.now(UTC) - made.clock.now()) // timedelta(milliseconds=1)
    made.change("SuperCluster", "demo", lambda body: body["spec"].update(tls={}))
    return made


def mounted(world: World, cluster: str, folder: Path) -> tuple[settings.Settings, GatewayCertificates]:
    """What a broker reads of its ConfigMap and its Secret."""
    folder.mkdir(exist_ok=True)
    for file, text in world.secret(f"{cluster}-tls").items():
        (folder / file).write_text(text)
    config = world.kube.objects[("ConfigMap", NS, f"{cluster}-config")]["data"]["broker.json"]
    found = settings.parse(json.loads(config))
    assert found.cluster_tls is not None
    assert found.cluster_tls == found.gateway_tls
    return found, GatewayCertificates(found.cluster_tls, folder=folder)


def shake_hands(one: GatewayCertificates, other: GatewayCertificates) -> dict[str, Any]:
    """Have one dial the other; what the other was shown.

    Raises:
        ssl.SSLError: they refuse each other.
    """
    ways = [ssl.MemoryBIO() for _ in range(2)]
    dialling = one.client.wrap_bio(ways[0], ways[1], server_hostname=one.server_name)
    dialled = other.context.wrap_bio(ways[1], ways[0], server_side=True)
    for _ in range(3):
        for side in (dialling, dialled):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return dict(dialled.getpeercert() or {})


@pytest.mark.covers("CL-3", "CL-6")
async def test_brokers_of_all_clusters_are_given_certificates_that_they_take_from_each_other(
    world: World, tmp_path: Path
) -> None:
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    for key in (SC, CLUSTER, Key("Cluster", NS, "west")):
        assert condition(world.status(key), "Synced")["status"] == "True", key
    (config, east), (_, west) = (mounted(world, name, tmp_path / name) for name in ("east", "west"))
    for one, other in ((east, west), (west, east), (east, east)):
        assert other.accepts(shake_hands(one, other))
    assert config.cluster_tls is not None
    assert config.cluster_tls.server_name == "brokers.demo.demo-ns.supercluster.internal"
    pod = world.kube.objects[("StatefulSet", NS, "east")]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][-2:] == ["--tls-dir", TLS_FOLDER]
    assert {"name": "tls", "mountPath": TLS_FOLDER, "readOnly": True} in container["volumeMounts"]
    assert {"name": "tls", "secret": {"secretName": "east-tls"}} in pod["volumes"]
    assert "demo-authority" not in json.dumps(pod), "the key of the authority is on no broker"


async def test_brokers_of_another_super_cluster_are_refused(world: World, tmp_path: Path) -> None:
    world.declare("SuperCluster", "second", tls={})
    world.declare("Cluster", "north", superCluster="second")
    await world.converge()
    _, east = mounted(world, "east", tmp_path / "east")
    _, north = mounted(world, "north", tmp_path / "north")
    for one, other in ((east, north), (north, east)):
        with pytest.raises(ssl.SSLError, match="verify failed"):
            shake_hands(one, other)


async def test_no_broker_is_made_before_its_certificate_is_there(world: World) -> None:
    await world.round(SC)
    del world.kube.objects[("Secret", NS, "east-tls")]
    for key in (CLUSTER, CLUSTER):
        await world.round(key)
    assert ("StatefulSet", NS, "east") not in world.kube.objects
    assert "waiting for Secret east-tls" in condition(world.status(CLUSTER), "Synced")["message"]
    await world.converge()
    assert ("StatefulSet", NS, "east") in world.kube.objects


async def test_a_renewal_restarts_nobody_and_a_lost_certificate_is_issued_again(
    world: World, tmp_path: Path
) -> None:
    await world.converge()
    _, before = mounted(world, "east", tmp_path / "before")
    template = world.kube.objects[("StatefulSet", NS, "east")]["spec"]["template"]
    authority = world.secret("demo-authority")
    await world.clock.advance(timedelta(days=61) // timedelta(milliseconds=1))
    await world.converge()
    _, renewed = mounted(world, "east", tmp_path / "renewed")
    assert renewed.loaded.certificate != before.loaded.certificate
    for one, other in ((before, renewed), (renewed, before)):
        assert other.accepts(shake_hands(one, other))
    del world.kube.objects[("Secret", NS, "east-tls")]
    await world.converge()
    _, again = mounted(world, "east", tmp_path / "again")
    assert again.loaded.certificate != renewed.loaded.certificate
    assert again.accepts(shake_hands(renewed, again))
    assert world.kube.objects[("StatefulSet", NS, "east")]["spec"]["template"] == template
    assert world.secret("demo-authority") == authority


async def test_an_authority_that_a_person_broke_is_told_and_not_overwritten(world: World) -> None:
    await world.converge()
    world.change("Secret", "demo-authority", lambda body: body["data"].update({"issuer.key": "bm9uc2Vuc2U="}))
    await world.converge()
    synced = condition(world.status(SC), "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "CredentialsUnreadable")
    assert "Secret demo-authority: issuer.crt and issuer.key are no authority" in synced["message"]
    assert world.secret("demo-authority")["issuer.key"] == "nonsense"


def report(world: World, cluster: str, folder: Path) -> GatewayCertificates:
    """Its brokers load what is in their Secret now, and say so."""
    _, found = mounted(world, cluster, folder)
    loaded = {"certificate": found.loaded.certificate, "authorities": list(found.loaded.authorities)}
    for number in range(3):
        world.brokers.restart[f"{cluster}-{number}"] = {"tls": {"clusterTls": loaded, "gatewayTls": loaded}}
    return found


@pytest.mark.covers("CL-3", "CL-5", "SF-30")
async def test_another_authority_takes_over_while_brokers_of_two_clusters_link_at_any_moment(
    world: World, tmp_path: Path
) -> None:
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    loaded = {name: report(world, name, tmp_path / f"{name}-0") for name in ("east", "west")}
    before, lone_key = world.secret("demo-authority"), world.secret("demo-authority")["issuer.key"]
    world.change(
        "SuperCluster",
        "demo",
        lambda body: (
            body["metadata"]
            .setdefault("annotations", {})
            .update({"supercluster.dev/exchange-authority": "monday"})
        ),
    )
    stages: list[frozenset[str]] = []
    for number in range(1, 6):
        for name in loaded:
            # One cluster's brokers after the other's: what is written meanwhile is loaded a round later.
            await world.converge()
            stages.append(frozenset(world.secret("demo-authority")))
            loaded[name] = report(world, name, tmp_path / f"{name}-{number}")
            for one in loaded.values():
                for other in loaded.values():
                    assert other.accepts(shake_hands(one, other))
    pair = {"issuer.crt", "issuer.key"}
    assert list(dict.fromkeys(stages)) == [
        frozenset({*pair, "next.crt", "next.key"}),
        frozenset({*pair, "former.crt"}),
        frozenset(pair),
    ]
    after = world.secret("demo-authority")
    assert after.keys() == before.keys()
    assert after["issuer.key"] != lone_key
    assert len(loaded["east"].loaded.authorities) == 1
    assert world.told().count("AuthorityExchanged") == 3
    assert condition(world.status(SC), "Synced")["status"] == "True"
    await world.converge()
    assert world.secret("demo-authority") == after


@pytest.mark.covers("SF-30")
async def test_the_former_authority_stays_while_a_broker_says_otherwise_than_when_the_plan_was_made(
    world: World, tmp_path: Path
) -> None:
    await world.converge()
    report(world, "east", tmp_path / "east")
    annotations = {"supercluster.dev/exchange-authority": "monday"}
    world.change("SuperCluster", "demo", lambda body: body["metadata"].update(annotations=annotations))
    await world.converge()
    current = world.brokers.restart["east-2"]
    report(world, "east", tmp_path / "both")
    asked = itertools.count()

    def late(call: str) -> Exception | None:
        # The plan is made from the first answer; the second one is asked for before the key is deleted.
        if call == "restart" and next(asked) == 1:
            world.brokers.restart["east-2"] = current
        return None

    world.brokers.fail = late
    await world.round(SC)
    assert "next.key" in world.secret("demo-authority")
    assert "not yet: east-2" in json.dumps(world.status(SC)["conditions"])


@pytest.mark.covers("SF-30")
async def test_a_stage_of_an_exchange_that_another_operator_has_carried_out_is_stale(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.converge()
    report(world, "east", tmp_path / "east")
    annotations = {"supercluster.dev/exchange-authority": "monday"}
    world.change("SuperCluster", "demo", lambda body: body["metadata"].update(annotations=annotations))
    done: list[Stage] = []
    run = Executor.run

    async def twice(self: Executor, resource: Any, step: Any, target: Any, of_kind: Any) -> None:
        await run(self, resource, step, target, of_kind)
        if isinstance(step, ExchangeAuthority):
            done.append(step.stage)
            with pytest.raises(KubeError, match="changed since the plan was made"):
                await run(self, resource, step, target, of_kind)

    monkeypatch.setattr(Executor, "run", twice)
    for number in range(3):
        await world.converge()
        report(world, "east", tmp_path / f"east-{number}")
    assert done == [Stage.INTRODUCE, Stage.PROMOTE, Stage.DROP]


async def test_an_authority_whose_secret_is_deleted_is_succeeded_without_a_break(
    world: World, tmp_path: Path
) -> None:
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    loaded = {name: report(world, name, tmp_path / f"{name}-0") for name in ("east", "west")}
    (lost,) = loaded["east"].loaded.authorities
    del world.kube.objects[("Secret", NS, "demo-authority")]
    for number in range(1, 5):
        for name in loaded:
            await world.converge()
            loaded[name] = report(world, name, tmp_path / f"{name}-{number}")
            for one in loaded.values():
                for other in loaded.values():
                    assert other.accepts(shake_hands(one, other))
    (found,) = loaded["east"].loaded.authorities
    assert found != lost


async def test_certificates_of_somebody_else_are_used_as_they_are_and_what_is_wrong_with_them_is_said(
    tmp_path: Path,
) -> None:
    world, authority = World(), Authority(tmp_path, "company")
    world.clock.ms = (datetime.now(UTC) - world.clock.now()) // timedelta(milliseconds=1)
    world.change("SuperCluster", "demo", lambda body: body["spec"].update(tls={"issuer": "Secrets"}))

    def give(names: list[str], trusted: Authority) -> None:
        found = authority.sign("east", dns=names)
        files = {"tls.crt": found.cert, "tls.key": found.key, "ca.crt": trusted.file}
        data = {name: b64encode(file.read_bytes()).decode() for name, file in files.items()}
        metadata = {"name": "east-tls", "namespace": NS}
        world.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})

    async def settled() -> None:
        # Of a status whose words alone change little is written in a minute.
        await world.clock.advance(60_000)
        await world.converge()

    def waits_for() -> str:
        synced = condition(world.status(CLUSTER), "Synced")
        assert synced["status"] == "False"
        assert ("StatefulSet", NS, "east") not in world.kube.objects
        return str(synced["message"])

    name = "brokers.demo.demo-ns.supercluster.internal"
    await settled()
    assert (
        waits_for() == "waiting for Secret east-tls: it is not there, and spec.tls.issuer is Secrets: make it"
    )
    give([name], Authority(tmp_path, "another"))
    await settled()
    assert waits_for() == "waiting for Secret east-tls: ca.crt lacks the authority that signed tls.crt"
    give(["east.demo-ns.svc"], authority)
    await settled()
    assert waits_for() == f"waiting for Secret east-tls: its certificate is not for {name}"
    give([name], authority)
    given = world.kube.objects[("Secret", NS, "east-tls")]
    await settled()
    _, loaded = mounted(world, "east", tmp_path / "east")
    assert loaded.accepts(shake_hands(loaded, loaded))
    assert world.kube.objects[("Secret", NS, "east-tls")] == given
    assert ("Secret", NS, "demo-authority") not in world.kube.objects
    assert condition(world.status(CLUSTER), "Synced")["status"] == "True"


@pytest.mark.covers("SF-30")
async def test_no_certificate_is_issued_by_another_authority_than_when_the_plan_was_made(
    world: World, tmp_path: Path
) -> None:
    """Two operators for a moment: one has planned a certificate that was missing, the other has dealt with all that came since."""
    world.declare("Cluster", "west", superCluster="demo")
    await world.converge()
    for name in ("east", "west"):
        report(world, name, tmp_path / name)
    whole = {name: clone(world.kube.objects[("Secret", NS, f"{name}-tls")]) for name in ("east", "west")}
    del world.kube.objects[("Secret", NS, "east-tls")]
    plans: list[str] = []

    def late(call: str) -> Exception | None:
        if call == "get Secret demo-authority" and not plans:
            plans.append(call)
            world.kube.put(whole["east"])
            signers = (b64decode(whole["east"]["data"]["ca.crt"]),)
            made = certificates.successor_of(signers, "demo-authority", world.clock.now())
            world.change("Secret", "demo-authority", lambda body: body.update(data=made))
        return None

    world.kube.fail = late
    await world.round(SC)
    assert plans
    assert (
        world.kube.objects[("Secret", NS, "east-tls")]["data"]["tls.crt"] == whole["east"]["data"]["tls.crt"]
    )


@pytest.mark.covers("SF-30")
async def test_somebody_elses_secret_of_that_name_is_left_alone(world: World) -> None:
    world.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "east-tls", "namespace": NS}})
    await world.round(SC)
    assert "data" not in world.kube.objects[("Secret", NS, "east-tls")]
    accepted = condition(world.status(SC), "Accepted")
    assert accepted["status"] == "False"
    assert "Secret east-tls exists" in accepted["message"]


async def test_an_operator_that_is_killed_at_any_call_makes_one_authority_and_goes_on() -> None:
    for number in range(60):
        world = World()
        world.change("SuperCluster", "demo", lambda body: body["spec"].update(tls={}))
        world.die_at_call(number)
        made = None
        try:
            await world.converge()
        except KilledError:
            secret = world.kube.objects.get(("Secret", NS, "demo-authority"))
            made = secret["data"] if secret is not None else None
        is_over = world.num_calls <= number
        world.kube.fail = world.brokers.fail = lambda _: None
        world.restart()
        await world.converge()
        assert made in (None, world.kube.objects[("Secret", NS, "demo-authority")]["data"]), number
        assert condition(world.status(CLUSTER), "Synced")["status"] == "True", number
        if is_over:
            return


async def test_the_authority_goes_with_the_super_cluster_and_not_before_its_last_cluster(
    world: World,
) -> None:
    await world.converge()
    world.delete(SC)
    for _ in range(3):
        await world.round(SC)
    assert not world.kube.objects[("Secret", NS, "demo-authority")]["metadata"].get("ownerReferences")
    world.change("Cluster", "east", lambda body: body["metadata"].pop("finalizers"))
    del world.kube.objects[("Cluster", NS, "east")]
    for _ in range(3):
        await world.round(SC)
    (owner,) = world.kube.objects[("Secret", NS, "demo-authority")]["metadata"]["ownerReferences"]
    assert owner["kind"] == "SuperCluster"
    assert ("SuperCluster", NS, "demo") not in world.kube.objects
