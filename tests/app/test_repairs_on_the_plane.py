"""Lost replicas on real processes: the three scenarios of the document about continuously maintained replicas, word for word, and what
else may happen to five nodes.

The recovery interval is shortened by configuration. One plane serves all tests, in their order: every test gives the nodes
back that it took.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.app.repair_site import (
    BROKERS,
    CHECK_S,
    EAST,
    INTERVAL_S,
    MESSAGES,
    PUBLISH_PAUSE_S,
    Listener,
    Publisher,
    RepairSite,
    publishing,
    read_numbers,
    site_of_five,
)
from tests.app.test_operator_on_the_plane import cli

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

# Until then a node has to be lost, missed by the others, and back with its broker, on a machine that has other work.
REBOOT_INTERVAL_S = 24
# Until then the loss has to be noticed, and a person to have acted.
PERSON_INTERVAL_S = 16
# One after the other by each publisher, on a machine that has other work.
MESSAGES_LEAST = 100
NS_PER_S = 1_000_000_000
FLAPS = 2


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[RepairSite]:
    with site_of_five(tmp_path_factory.mktemp("dev"), kubectl) as made:
        yield made


def declared(site: RepairSite, name: str) -> set[str]:
    """The brokers that hold a stream of three replicas."""
    site.declare(name)
    site.ready(name)
    members = site.members(name)
    assert len(members) == 3
    return members


def zones(site: RepairSite) -> dict[str, str]:
    return {name: site.zone_of(name) for name in BROKERS}


def by_zone(zone_of: dict[str, str], members: set[str]) -> tuple[str, str] | None:
    """A member C and a spare D, such that D alone is in a zone without a replica when C is gone; None: there are none."""
    for lost in sorted(members):
        held = {zone_of[name] for name in members - {lost}}
        free = [name for name in BROKERS if name not in members and zone_of[name] not in held]
        if len(free) == 1:
            return lost, free[0]
    return None


@pytest.mark.covers("MR-6", "MR-2", "MR-5", "MR-7")
def test_one_the_node_is_deleted_and_d_joins_by_its_zone(site: RepairSite) -> None:
    zone_of, name, found = zones(site), "", None
    for number in range(len(BROKERS)):
        name = f"one{number}"
        members = declared(site, name)
        if (found := by_zone(zone_of, members)) is not None:
            break
    assert found is not None, f"{members} of {zone_of}"
    c, d = found
    (e,) = set(BROKERS) - members - {d}
    # By load alone it would be E.
    for number in range(3):
        site.declare(f"load{number}", replicas=1, deletionPolicy="Delete", placement={"preferredLeader": d})
        site.ready(f"load{number}")
    copies = {entry["node"]: entry["copies"] for entry in site.brokers()["brokers"]}
    assert copies[d] > copies[e]
    with publishing(site, name, without={c}) as publisher, site.lost(c) as node:
        site.kubectl("delete", "node", node)
        site.wait(lambda: site.pod(c).get("status", {}).get("phase") == "Pending", f"{c} to have no node")
        site.wait(lambda: site.repairs(name) == ["Succeeded"], f"a repair, of {site.moves(name)}")
        assert site.members(name) == members - {c} | {d}
        (made,) = (body["spec"]["repair"] for body in site.moves(name).values())
        assert (made["replace"], set(made["nodes"])) == ([c], members - {c} | {d})
        assert f"{d} by spread-zones" in made["reason"]
        site.wait(lambda: site.replication(name).get("usable") == 3, "the status to say so")
        site.watch_some_rounds()
        assert site.repairs(name) == ["Succeeded"], "future checks discover that no action is necessary"
        assert publisher.acknowledged > MESSAGES_LEAST, "it went on all the time"
    assert site.members(name) == members - {c} | {d}, "who comes back too late is not taken in again"
    site.kubectl("delete", "str", *(f"load{number}" for number in range(3)))


@pytest.mark.long
@pytest.mark.covers("MR-2", "MR-7", "OP-4", "SF-8")
def test_two_nodes_are_lost_one_after_the_other_and_the_operator_is_killed_in_a_repair(
    site: RepairSite,
) -> None:
    name = "both-lost"
    # A copy of two megabytes takes some seconds at this rate: time to kill the operator.
    site.policy(name, budget={"concurrentMax": 1, "bytesPerS": "400Ki"})
    before = declared(site, name)
    first = site.leader(name)
    second = max(before - {first})
    site.publish(name, 400, 4_096)
    site.kubectl("wait", "--for=condition=Ready", f"rpp/{name}", "--timeout=30s")
    nodes = {first: site.lose(first)}
    try:
        site.wait(lambda: site.repairs(name) == ["Running"], f"a repair, of {site.moves(name)}")
        site.kill_the_operator()
        assert site.repairs(name) == ["Running"], "it was killed in the middle"
        site.start_the_operator()
        site.wait(lambda: site.repairs(name) == ["Succeeded"], f"its end, of {site.moves(name)}")
        members = site.members(name)
        assert (len(members), before - members) == (3, {first})
        site.policy(name)
        nodes[second] = site.lose(second)
        site.wait(lambda: site.repairs(name) == ["Succeeded"] * 2, f"another one, of {site.moves(name)}")
        assert site.members(name) == set(BROKERS) - {first, second}
        site.wait(lambda: site.replication(name).get("usable") == 3, "the status to say so")
        site.watch_some_rounds()
        assert site.repairs(name) == ["Succeeded"] * 2
        assert site.with_client(lambda client: read_numbers(client, name, 400)) == list(range(400))
    finally:
        for node in nodes.values():
            site.lever("return-node", node)
    site.give_back(nodes)
    assert site.members(name) == set(BROKERS) - {first, second}


@pytest.mark.long
@pytest.mark.covers("MR-6", "MR-3", "MR-1")
def test_two_a_person_adds_one_after_the_loss_and_both_stay(site: RepairSite) -> None:
    site.policy("both", failureRecoveryInterval=f"{PERSON_INTERVAL_S}s")
    members = declared(site, "both")
    c = max(members - {site.leader("both")})
    added, other = sorted(set(BROKERS) - members)
    kubeconfig = ("--kubeconfig", str(site.state / "kubeconfig"), "-n", "default")
    with publishing(site, "both", without={c}):
        with site.lost(c):
            site.wait(lambda: site.missed() == [c], f"{c} to be missed")
            asked = cli("replica", "add", "both", added, *kubeconfig)
            assert asked.returncode == 0, asked.stderr
            assert site.repairs("both") == [], "before the interval ends"
            site.wait(
                lambda: site.members("both") == {*members - {c}, added, other},
                f"both to be there, of {site.members('both')}, {site.moves('both')}",
            )
            site.wait(lambda: site.repairs("both") == ["Succeeded"], "the repair to be over")
            site.wait(lambda: site.replication("both").get("usable") == 4, "the status to say so")
            assert site.replication("both")["extra"] == 1
            site.watch_some_rounds()
            assert len(site.moves("both")) == 2, "the person's and one repair: no action is necessary"
        assert site.members("both") == {*members - {c}, added, other}, "both stay, and nothing more is done"
        assert site.ask("STREAM.INFO.both")["config"]["num_replicas"] == 3


@pytest.mark.long
@pytest.mark.covers("MR-6", "MR-2")
def test_three_the_node_is_rebooted_and_back_before_the_interval_ends(site: RepairSite) -> None:
    site.policy("back", failureRecoveryInterval=f"{REBOOT_INTERVAL_S}s")
    members = declared(site, "back")
    c = max(members - {site.leader("back")})
    with publishing(site, "back", without={c}):
        with site.lost(c):
            site.wait(lambda: site.missed() == [c], f"{c} to be missed")
            site.wait(lambda: "since" in site.replication("back"), "the Stream to say so")
            since_ns = site.away_since_ns(c)
            assert since_ns is not None
        site.wait(lambda: site.is_current("back"), "its replica to have caught up")
        end_ns = since_ns + (REBOOT_INTERVAL_S + CHECK_S) * NS_PER_S
        assert site.brokers()["timeNs"] < end_ns, "this machine was too slow for the scenario"
        site.watch_beyond(end_ns)
        assert (site.members("back"), site.moves("back")) == (members, {})
        assert site.replication("back")["usable"] == 3


@pytest.mark.long
@pytest.mark.covers("MR-2", "MR-7")
def test_a_node_that_flaps_is_never_replaced(site: RepairSite) -> None:
    """It is away about half of the time, each time for less than the interval, and watched for longer than that in all."""
    site.policy("flaps", failureRecoveryInterval=f"{REBOOT_INTERVAL_S}s")
    members = declared(site, "flaps")
    c = max(members - {site.leader("flaps")})
    losses: list[int] = []
    with publishing(site, "flaps", without={c}):
        for _ in range(FLAPS):
            with site.lost(c):
                site.wait(lambda: site.missed() == [c], f"{c} to be missed")
                losses.append(site.away_since_ns(c) or 0)
            site.wait(lambda: site.is_current("flaps"), "its replica to have caught up")
        assert losses == sorted(set(losses)), "every absence is one of its own"
        site.watch_beyond(losses[-1] + (REBOOT_INTERVAL_S + CHECK_S) * NS_PER_S)
        assert (site.members("flaps"), site.moves("flaps")) == (members, {})


@pytest.mark.long
@pytest.mark.covers("MR-2", "MR-7")
def test_without_a_spare_broker_the_stream_says_so_and_nothing_is_tried(site: RepairSite) -> None:
    site.declare("wide", replicas=5, deletionPolicy="Delete")
    site.ready("wide")

    def told() -> str:
        return str(site.condition("str", "wide", "Whole").get("message"))

    with site.lost("east-4"):
        site.wait(
            lambda: "no broker can take a replica in the place of east-4" in told(),
            f"it to be said: {told()}",
        )
        said = site.condition("str", "wide", "Whole")
        assert said["reason"] == "LostReplicas"
        site.watch_some_rounds()
        assert (site.moves("wide"), len(site.members("wide"))) == ({}, 5), "nothing thrashes"
        assert site.condition("str", "wide", "Whole") == said
    site.ready("wide")


def capacities(site: RepairSite) -> dict[str, str]:
    """What the brokers' volumes have."""
    listed = json.loads(site.kubectl("get", "pvc", "-o", "json").stdout)["items"]
    return {
        body["metadata"]["name"].removeprefix("data-"): str(body["status"]["capacity"]["storage"])
        for body in listed
    }


def evict(site: RepairSite, pod: str) -> str:
    """As `kubectl drain` does, but asks once; empty when it was allowed."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
    path = f"/api/v1/namespaces/default/pods/{pod}/eviction"
    done = site.kubectl("create", "--raw", path, "-f", "-", stdin=body, check=False)
    return "" if done.returncode == 0 else done.stderr


@pytest.mark.long
@pytest.mark.covers("OP-3", "CL-7", "SF-16", "MR-2", "MR-7")
def test_a_kubernetes_node_is_drained_and_its_replicas_are_made_elsewhere(site: RepairSite) -> None:
    members = declared(site, "drained")
    gone = site.leader("drained")
    other = min(members - {gone})
    node, address = site.node_of(gone), f"{site.ip(gone)}:4222"

    def is_drainable() -> bool:
        return bool(site.condition("ncl", "east", "Drainable").get("status") == "True")

    site.wait(is_drainable, "the cluster to be whole")
    with publishing(site, "drained", without=set()) as publisher:
        client = Listener(site, site.ip(gone))
        site.kubectl("drain", node, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=55s")
        assert site.get("node", node)["spec"]["unschedulable"] is True
        (greeting, *later) = client.wait()
        assert "ldm" not in greeting
        goodbye = next((told for told in later if told.get("ldm")), {})
        assert goodbye.get("connect_urls"), f"it is told where to go: {later}"
        assert address not in goodbye["connect_urls"]
        assert site.leader("drained") != gone
        assert "disruption budget" in evict(site, other), "one at a time"
        site.wait(lambda: site.repairs("drained") == ["Succeeded"], f"a repair, of {site.moves('drained')}")
        after = site.members("drained")
        assert (len(after), members - after) == (3, {gone})
        site.wait(lambda: site.replication("drained").get("usable") == 3, "the status to say so")
        assert "disruption budget" in evict(site, other), "a broker of the Cluster has no node"
        assert publisher.acknowledged > MESSAGES_LEAST, "it went on all the time"
        site.kubectl("uncordon", node)
        site.wait(lambda: site.is_ready(gone), f"{gone} to be back")
        site.wait(is_drainable, "the cluster to be whole again")
    assert site.members("drained") == after, "who comes back too late is not taken in again"


@pytest.mark.long
@pytest.mark.covers("OP-3", "OP-4", "MR-2", "SF-5")
def test_a_broker_fewer_and_one_more_again_and_nothing_is_lost(site: RepairSite) -> None:
    def scale(replicas: int) -> None:
        patch = json.dumps({"spec": {"replicas": replicas}})
        site.kubectl("patch", "ncl", "east", "--type=merge", "-p", patch)

    def running() -> int:
        return int(site.get("statefulset", "east")["spec"]["replicas"])

    def all_members() -> dict[str, set[str]]:
        listed = json.loads(site.kubectl("get", "str", "-o", "json").stdout)["items"]
        return {body["metadata"]["name"]: site.members(body["metadata"]["name"]) for body in listed}

    site.declare("full", replicas=5, deletionPolicy="Delete")
    site.declare("four", replicas=4)
    site.ready("full")
    site.ready("four")
    site.publish("four")
    scale(4)
    site.wait(lambda: site.condition("ncl", "east", "Deferred").get("status") == "True", "the refusal")
    assert "stream full: 5 replicas" in site.condition("ncl", "east", "Deferred")["message"]
    scale(5)
    site.kubectl("delete", "str", "full", "wide", "--ignore-not-found")
    site.declare("shrinks", placement={"preferredLeader": "east-4"})
    site.ready("shrinks")
    scale(4)
    uids = {name: site.get("pod", name)["metadata"]["uid"] for name in BROKERS[:4]}
    publisher = Publisher(site, "shrinks", [f"nats://{site.ip(name)}:4222" for name in BROKERS[:4]])
    publisher.start()
    try:
        site.wait(lambda: bool(site.get("ncl", "east")["status"].get("drain")), "it to be begun")
        site.kill_the_operator()
        site.start_the_operator()
        site.wait(lambda: running() == 4, f"east-4 to go: {site.condition('ncl', 'east', 'Synced')}")
        site.wait(lambda: site.condition("ncl", "east", "Synced").get("status") == "True", "it to be over")
        members = all_members()
        assert all("east-4" not in held for held in members.values()), members
        assert all(len(members[name]) == count for name, count in (("shrinks", 3), ("four", 4)))
    finally:
        sent = publisher.finish()
    assert site.with_client(lambda client: read_numbers(client, "shrinks", sent)) == list(range(sent))
    assert site.ask("STREAM.INFO.four")["state"]["messages"] == MESSAGES
    assert {name: site.get("pod", name)["metadata"]["uid"] for name in BROKERS[:4]} == uids, "none restarted"
    assert site.get("pvc", "data-east-4")["status"]["phase"] == "Bound"

    scale(5)  # On the volume that was kept, with the copies that it had.
    site.wait(lambda: site.exists("pod", "east-4") and site.is_ready("east-4"), "east-4 to be back")
    site.wait(lambda: not site.get("ncl", "east")["status"].get("drain"), "it to be told to stay")
    patch = json.dumps({"spec": {"storage": {"size": "2Gi"}}})
    site.kubectl("patch", "ncl", "east", "--type=merge", "-p", patch)
    site.wait(lambda: capacities(site) == dict.fromkeys(BROKERS, "2Gi"), "larger volumes")
    assert {name: site.get("pod", name)["metadata"]["uid"] for name in BROKERS[:4]} == uids, "none restarted"
    site.declare("again", replicas=5)
    site.ready("again")
    site.publish("again")
    assert site.members("again") == set(BROKERS)
    assert all("east-4" not in held for name, held in all_members().items() if name != "again")
    assert site.with_client(lambda client: read_numbers(client, "shrinks", sent)) == list(range(sent))


WEST = {
    **EAST,
    "metadata": {"name": "west", "namespace": "default"},
    "spec": {**EAST["spec"], "replicas": 4},
}
# A megabyte for each of three new replicas takes half a minute at this rate: longer than the recovery interval of one that is lost.
SLOW = {"bandwidth": {"bytesPerS": "100Ki"}}
COPIED, COPIED_BYTES = 250, 4_096


def targets(site: RepairSite, stream: str) -> set[str]:
    """Where the stream's only move leads, once it copies."""
    (move,) = site.moves(stream).values()
    status = move.get("status", {})
    assert status.get("phase") == "Running", status
    return {found["name"] for found in status["plan"]["targets"]}


@pytest.mark.long
@pytest.mark.covers("MR-7", "MV-3", "MV-9", "MV-4", "SF-5", "SF-6")
def test_a_repair_meets_a_move_whose_source_or_target_dies_and_waits_for_it(site: RepairSite) -> None:
    site.kubectl("apply", "-f", "-", stdin=WEST)
    site.kubectl("wait", "--for=condition=Ready", "ncl/west", "--timeout=90s")
    for name in ("source", "target"):
        site.declare(name, placement={"cluster": "east"}, move=SLOW)
        site.ready(name)
        site.publish(name, COPIED, COPIED_BYTES)
    for name in ("source", "target"):
        patch = json.dumps({"spec": {"placement": {"cluster": "west"}}})
        site.kubectl("patch", "str", name, "--type=merge", "-p", patch)
        site.wait_for_move(name, "Running")
    homes = {name: targets(site, name) for name in ("source", "target")}
    # Of the one stream a member of the old place is lost, of the other one of the new place.
    x = max(site.members("source") - {site.leader("source")})
    y = min(homes["target"] - homes["source"])
    nobody: dict[str, list[str]] = {"source": [], "target": []}

    def waiting() -> dict[str, str]:
        status = site.get("scl", "demo").get("status", {}).get("repair") or {}
        return {entry["stream"]: entry["reason"] for entry in status.get("waiting") or ()}

    with (
        publishing(site, "source", {x}, before=COPIED, pause_s=PUBLISH_PAUSE_S),
        publishing(site, "target", {x}, before=COPIED, pause_s=PUBLISH_PAUSE_S),
        site.lost(y),
        site.lost(x),
    ):
        site.wait(lambda: site.missed() == [x, y], "both to be missed")
        since_ns = site.away_since_ns(x)
        assert since_ns is not None
        site.wait(
            lambda: "a move of the stream" in waiting().get("source", ""), f"a repair to wait: {waiting()}"
        )
        site.watch_beyond(since_ns + (INTERVAL_S + CHECK_S) * NS_PER_S)
        assert site.phases("source") == ["Running"], "the move is under way when the replica becomes due"
        assert {name: site.repairs(name) for name in nobody} == nobody
        site.wait_for_move("source", "Succeeded")
        assert site.members("source") == homes["source"]
        site.wait_for_move("target", "Succeeded")  # With somebody else in the place of the one that died.
        assert site.members("target") == {f"west-{number}" for number in range(4)} - {y}
        site.wait(
            lambda: {site.replication(name).get("usable") for name in nobody} == {3}, "the status to say so"
        )
        site.watch_some_rounds()
        assert {name: site.repairs(name) for name in nobody} == nobody, "the moves left nothing to repair"
        assert not waiting().keys() & nobody.keys()
