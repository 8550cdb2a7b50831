"""Volumes, addresses, names, back-off, verdicts of probes and statuses, each by itself."""

from __future__ import annotations

import datetime as dt
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from supercluster.localplane.client import Json
from supercluster.localplane.node import hosts, probes, status, volumes
from supercluster.localplane.node.addresses import BLOCK_ADDRESSES, RESERVED, Addresses, OutOfAddresses
from supercluster.localplane.node.agent import KEPT_PODS_MAX, tidy
from supercluster.localplane.node.container import Backoff
from supercluster.localplane.node.environment import MissingReference, Sources
from supercluster.localplane.node.status import ContainerView, Running, Terminated, Waiting
from supercluster.localplane.node.volumes import File

# ---------------------------------------------------------------- volumes


def config_map(**data: str) -> Json:
    return {"metadata": {"name": "config"}, "data": data}


def sources(config_maps: dict[str, Json], secrets: dict[str, Json]) -> Sources:
    return Sources(config_maps.get, secrets.get)


def volume_pod(**volume: Any) -> Json:
    return {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": {"a": "b"}},
        "spec": {"volumes": [{"name": "v", **volume}]},
    }


def test_an_update_is_seen_through_the_same_path_in_one_swap(tmp_path: Path) -> None:
    first = {"a": File(b"1"), "deep/b": File(b"2", 0o600)}
    assert volumes.write_live(tmp_path / "v", first)
    assert not volumes.write_live(tmp_path / "v", first)
    handle = (tmp_path / "v" / "a").open("rb")
    old = (tmp_path / "v" / "..data").resolve()
    assert volumes.write_live(tmp_path / "v", {"a": File(b"3")})
    assert (tmp_path / "v" / "a").read_bytes() == b"3"
    assert handle.read() == b"1", "a reader of the old version goes on reading it"
    handle.close()
    assert not (tmp_path / "v" / "deep").is_symlink()
    assert not old.exists()
    assert sorted(path.name for path in (tmp_path / "v").iterdir() if not path.name.startswith("..")) == ["a"]


def test_modes_and_items_are_as_the_volume_says(tmp_path: Path) -> None:
    pod = volume_pod(
        secret={"secretName": "s", "defaultMode": 0o400, "items": [{"key": "k", "path": "sub/name"}]}
    )
    secret = {"metadata": {"name": "s"}, "data": {"k": "dg==", "other": "eA=="}}
    paths = volumes.prepare(pod, tmp_path, sources({}, {"s": secret}), lambda name: tmp_path)
    assert (paths["v"] / "sub" / "name").read_bytes() == b"v"
    assert stat.S_IMODE((paths["v"] / "sub" / "name").stat().st_mode) == 0o400
    assert not (paths["v"] / "other").exists()


def test_projected_volumes_mix_their_sources(tmp_path: Path) -> None:
    downward = {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}
    pod = volume_pod(projected={"sources": [{"configMap": {"name": "config"}}, {"downwardAPI": downward}]})
    paths = volumes.prepare(pod, tmp_path, sources({"config": config_map(x="1")}, {}), lambda name: tmp_path)
    assert (paths["v"] / "x").read_text() == "1"
    assert (paths["v"] / "labels").read_text() == 'a="b"\n'
    assert volumes.references(pod) == {("ConfigMap", "config")}


@pytest.mark.parametrize("path", ["../up", "/abs", "..hidden"])
def test_paths_that_leave_the_volume_are_refused(tmp_path: Path, path: str) -> None:
    pod = volume_pod(configMap={"name": "config", "items": [{"key": "x", "path": path}]})
    with pytest.raises(MissingReference, match="relative"):
        volumes.prepare(pod, tmp_path, sources({"config": config_map(x="1")}, {}), lambda name: tmp_path)


def test_a_volume_of_a_kind_that_is_not_served_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingReference, match=r"'v'.*\(nfs\)"):
        volumes.prepare(volume_pod(nfs={}), tmp_path, sources({}, {}), lambda name: tmp_path)


def test_mount_paths_lead_to_directories_and_sub_paths(tmp_path: Path) -> None:
    container = {
        "volumeMounts": [
            {"name": "v", "mountPath": "/a/"},
            {"name": "v", "mountPath": "/b", "subPathExpr": "$(POD)"},
        ]
    }
    found = volumes.mounts(container, {"v": tmp_path}, lambda text: text.replace("$(POD)", "p-0"))
    assert found == {"/a": str(tmp_path), "/b": str(tmp_path / "p-0")}
    assert (tmp_path / "p-0").is_dir()


def test_housekeeping_cuts_long_logs_and_drops_the_oldest_dead_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("supercluster.localplane.node.agent.LOG_BYTES_MAX", 10)
    for number in range(KEPT_PODS_MAX + 2):
        pod_dir = tmp_path / "ns" / f"uid-{number}"
        pod_dir.mkdir(parents=True)
        (pod_dir / "main.log").write_text("x" * 11)
        os.utime(pod_dir, (number, number))
    tidy(tmp_path, {"uid-0"})
    left = {path.name for path in (tmp_path / "ns").iterdir()}
    assert "uid-0" in left
    assert "uid-1" not in left
    assert len(left) == KEPT_PODS_MAX + 1
    assert (tmp_path / "ns" / "uid-0" / "main.log").read_text() == ""
    assert (tmp_path / "ns" / "uid-2" / "main.log").read_text() != ""


# ---------------------------------------------------------------- addresses and names


def test_a_stateful_pods_address_is_kept_over_a_restart_and_others_are_used_again_late(
    tmp_path: Path,
) -> None:
    addresses = Addresses(tmp_path / "a.json")
    kept, gone = addresses.take("ns/web-0"), addresses.take("ns/bare")
    addresses.release("ns/web-0", keep=True)
    addresses.release("ns/bare", keep=False)
    again = Addresses(tmp_path / "a.json")
    assert again.take("ns/web-0") == kept
    others = [again.take(f"ns/{number}") for number in range(100)]
    assert gone not in others
    assert len({kept, *others}) == 101


def test_addresses_of_pods_that_left_are_given_away_only_when_all_others_are_taken(tmp_path: Path) -> None:
    addresses = Addresses(tmp_path / "a.json")
    kept = addresses.take("ns/web-0")
    addresses.release("ns/web-0", keep=True)
    skipped = 6  # Addresses that end in .0 or .255, as those of networks and broadcasts do.
    usable = BLOCK_ADDRESSES - RESERVED - 1 - skipped
    seen = [addresses.take(f"ns/{number}") for number in range(usable)]
    with pytest.raises(OutOfAddresses):
        addresses.take("ns/one-too-many")
    assert seen.index(kept) == len(seen) - 1
    assert len(set(seen)) == len(seen)
    assert not any(address.endswith((".0", ".255")) for address in seen)


def test_two_planes_have_different_blocks(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    one, two = Addresses(tmp_path / "one" / "a.json"), Addresses(tmp_path / "a.json")
    two.block = one.block
    with one.claim_block(), two.claim_block():
        assert one.block != two.block
        assert one.take("ns/p") != two.take("ns/p")
        assert one.node(0) != two.node(0)
    assert one.node(RESERVED + 5) == one.node(RESERVED + 50), "nodes never get a pod's address"


def service(**spec: Any) -> Json:
    return {"metadata": {"name": "svc", "namespace": "ns"}, "spec": {"selector": {"app": "x"}, **spec}}


def named_pod(name: str, address: str, *, ready: bool = True, **meta: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "ns", "uid": name, "labels": {"app": "x"}, **meta},
        "spec": {"hostname": name, "subdomain": "svc", "containers": []},
        "status": {
            "phase": "Running",
            "podIP": address,
            "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        },
    }


PODS = [named_pod("p-0", "10.0.0.1", ready=False), named_pod("p-1", "10.0.0.2"), named_pod("p-2", "10.0.0.3")]


def test_a_headless_service_names_each_ready_pod_and_itself_for_all() -> None:
    found = hosts.lines([service(clusterIP="None")], lambda namespace: PODS)
    assert found[1:] == [
        "10.0.0.2 p-1.svc.ns.svc.cluster.local p-1.svc.ns.svc p-1.svc.ns",
        "10.0.0.3 p-2.svc.ns.svc.cluster.local p-2.svc.ns.svc p-2.svc.ns",
        "10.0.0.2 svc.ns.svc.cluster.local svc.ns.svc svc.ns",
        "10.0.0.3 svc.ns.svc.cluster.local svc.ns.svc svc.ns",
    ]


def test_a_service_that_publishes_unready_addresses_names_all_pods() -> None:
    found = hosts.lines([service(clusterIP="None", publishNotReadyAddresses=True)], lambda namespace: PODS)
    assert any(line.startswith("10.0.0.1 p-0.svc") for line in found)


def test_another_service_has_one_ready_pod_that_is_not_ending_if_there_is_one() -> None:
    ending = [named_pod("p-0", "10.0.0.1", deletionTimestamp="x"), named_pod("p-1", "10.0.0.2")]
    assert hosts.lines([service(clusterIP="10.96.0.1")], lambda namespace: ending)[1:] == [
        "10.0.0.2 svc.ns.svc.cluster.local svc.ns.svc svc.ns"
    ]


# ---------------------------------------------------------------- back-off and probes


def test_the_first_restart_comes_at_once_and_later_ones_ever_later_up_to_a_bound() -> None:
    backoff = Backoff()
    assert [backoff.after_end(1) for _ in range(8)] == [0, 10, 20, 40, 80, 160, 300, 300]
    assert backoff.after_end(601) == 0


def test_a_verdict_needs_its_threshold_in_a_row() -> None:
    counter = probes.Counter(probes.Timing(0, 1, 1, successes=2, failures=3))
    given = [True, True, False, False, True, False, False, False, True, True]
    verdicts = [counter.add(one) for one in given]
    assert verdicts == [None, True, True, True, True, True, True, False, False, True]


def test_probe_timings_have_kubernetes_defaults() -> None:
    assert probes.Timing.of({}) == probes.Timing(0, 10, 1, 1, 3)


# ---------------------------------------------------------------- status

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


def view(state: status.State, **more: Any) -> ContainerView:
    base: dict[str, Any] = {
        "name": "c",
        "image": "i",
        "last": None,
        "restarts": 0,
        "is_ready": isinstance(state, Running),
        "is_started": isinstance(state, Running),
        "container_id": "",
    }
    return ContainerView(state=state, **{**base, **more})


def over(code: int) -> Terminated:
    return Terminated(code, "Completed" if not code else "Error", "s", "f")


@pytest.mark.parametrize(
    ("policy", "states", "expected"),
    [
        ("Always", [Waiting()], "Pending"),
        ("Always", [Running("s"), Waiting()], "Running"),
        ("Always", [over(0)], "Running"),
        ("Never", [over(0), over(0)], "Succeeded"),
        ("Never", [over(0), over(1)], "Failed"),
        ("Never", [over(1), Running("s")], "Running"),
        ("OnFailure", [over(0)], "Succeeded"),
    ],
)
def test_phases(policy: str, states: list[status.State], expected: str) -> None:
    assert status.phase(policy, [], [view(state) for state in states], True) == expected


def test_a_failed_init_container_fails_a_pod_that_is_never_restarted() -> None:
    inits = [view(over(1), is_init=True)]
    assert status.phase("Never", inits, [view(Waiting())], False) == "Failed"
    assert status.phase("Always", inits, [view(Waiting())], False) == "Pending"


def build(pod: Json, *views: ContainerView) -> Json:
    return status.build(
        pod,
        views,
        is_initialized=True,
        address="10.0.0.1",
        host_address="10.0.0.254",
        started_at="s",
        now=NOW,
    )


def conditions(told: Json) -> dict[str, str]:
    return {one["type"]: one["status"] for one in told["conditions"]}


def test_conditions_keep_their_transition_time_and_those_of_others() -> None:
    pod: Json = {"metadata": {}, "spec": {}}
    first = build(pod, view(Running("s")))
    foreign = {"type": "Mine", "status": "True"}
    first["conditions"].append(foreign)
    for one in first["conditions"]:
        one["lastTransitionTime"] = "before"
    second = build({**pod, "status": first}, view(Running("s")))
    assert second == first
    third = build({**pod, "status": first}, view(Running("s"), is_ready=False))
    assert conditions(third)["Ready"] == "False"
    ready = next(one for one in third["conditions"] if one["type"] == "Ready")
    assert ready["lastTransitionTime"] == "2026-01-02T03:04:05Z"
    assert foreign in third["conditions"]


def test_a_readiness_gate_holds_back_ready_but_not_the_containers() -> None:
    pod: Json = {"metadata": {}, "spec": {"readinessGates": [{"conditionType": "Gate"}]}}
    closed = build(pod, view(Running("s")))
    assert (conditions(closed)["Ready"], conditions(closed)["ContainersReady"]) == ("False", "True")
    pod["status"] = {"conditions": [{"type": "Gate", "status": "True"}]}
    assert conditions(build(pod, view(Running("s"))))["Ready"] == "True"


@pytest.mark.parametrize(
    "state", [Waiting("R", "m"), Running("s"), Terminated(137, "Error", "s", "f", 9, "m", "id")]
)
def test_states_survive_the_way_through_json(state: status.State) -> None:
    assert status.state_of(status.state_json(state)) == state
