"""Upgrades of a cluster of three on the embedded control plane, over images of three versions, while messages come in.

The brokers speak levels that were made up (`tests/support/levelled_broker.py`), so that in the middle brokers of two versions are one
cluster. One plane serves the tests, in their order.
"""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.app.repair_site import BROKERS, EAST, SUPER_CLUSTER, Publisher, RepairSite, publishing
from tests.app.test_operator_on_the_plane import cli
from tests.conftest import kubectl_runner

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

LEVELLED_BROKER = Path(__file__).resolve().parents[1] / "support" / "levelled_broker.py"
OLDEST, OLDER, NEW = (f"supercluster/broker:0.0.{level}" for level in (1, 2, 3))
IMAGES = {image: ["python", str(LEVELLED_BROKER), image[-1]] for image in (OLDEST, OLDER, NEW)}
VERSION = "0.0.3"
LEVEL_TOO_LOW = 19008
STREAMS = ("calm", "busy")
# One after the other by each publisher, on a machine that starts three brokers meanwhile.
MESSAGES_LEAST = 100


class UpgradeSite(RepairSite):
    """Three brokers, and their versions."""

    names: Sequence[str] = BROKERS[:3]

    def synced(self) -> dict[str, Any]:
        return self.condition("ncl", "east", "Synced")

    def upgrade(self, image: str, **rollout: Any) -> None:
        patch = json.dumps({"spec": {"image": image, "rollout": rollout}})
        self.kubectl("patch", "ncl", "east", "--type=merge", "-p", patch)

    def versions(self) -> dict[str, str]:
        """What every broker says that it is."""
        return {name: self._version(name) for name in self.names}

    def all_have(self, version: str) -> bool:
        """A broker that others refuse may be restarted once more behind a roll-out's end, and does not answer meanwhile."""
        try:
            return self.versions() == dict.fromkeys(self.names, version)
        except OSError:
            return False

    def _version(self, broker: str) -> str:
        with urllib.request.urlopen(f"http://{self.ip(broker)}:8222/varz", timeout=10) as answer:
            return str(json.load(answer)["git_commit"]).removeprefix("supercluster-")

    def pods(self) -> dict[str, tuple[str, int]]:
        """Uid and restarts of every broker's pod that is there and was started."""
        found = {name: self.pod(name) for name in self.names}
        return {
            name: (pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"])
            for name, pod in found.items()
            if pod.get("status", {}).get("containerStatuses")
        }

    def wait_for_all(self, version: str) -> None:
        """Until all have it, and everything is whole."""
        self.wait(
            lambda: (
                self.synced().get("status") == "True"
                and self.synced().get("observedGeneration")
                == self.get("ncl", "east")["metadata"]["generation"]
            ),
            f"the roll-out, of {self.synced()}",
        )
        self.wait(lambda: self.all_have(version), f"all to say that they are {version}")
        self.wait(
            lambda: self.condition("ncl", "east", "Drainable").get("status") == "True", "all to be whole"
        )

    def wait_for_question(self) -> str:
        """What approves the next restart, as the condition says."""
        words: list[str] = []

        def is_asked() -> bool:
            synced = self.synced()
            if synced.get("reason") == "AwaitingRestartApproval":
                words.extend(
                    re.findall(r"to approve all of them, with (\S+/\S+) to approve", synced["message"])
                )
            return bool(words)

        self.wait(is_asked, f"the question, of {self.synced()}")
        return words[0]

    def cordon(self, method: str) -> tuple[int, dict[str, Any]]:
        """A request that came with version 3 of what brokers speak."""
        body = {"reason": "a test", "declaredBy": "tests"} if method == "PUT" else None
        return self.admin("brokers/east-0/cordon", method, body)

    def wait_for_refusal(self, old: set[str]) -> None:
        """Until somebody leads the map and says who could not read it there."""

        def why() -> str:
            status, told = self.cordon("PUT")
            assert status == 503, told
            return str(told["error"]) if told["err_code"] == LEVEL_TOO_LOW else ""

        self.wait(
            lambda: all(f"{each} speaks version 2" in why() for each in old), f"{old} to be named: {why()}"
        )

    def wait_for_more(self, publisher: Publisher) -> None:
        before = publisher.acknowledged
        self.wait(lambda: publisher.acknowledged > before, "publishing to go on")

    def wait_for_restart(self, broker: str, uid: str) -> None:
        self.wait(lambda: self.pods().get(broker, (uid, 0))[0] != uid, f"{broker} to be replaced")
        self.wait(lambda: self.is_ready(broker), f"{broker} to be back")

    def is_replaced(self, before: dict[str, tuple[str, int]]) -> bool:
        """Has every broker another pod, whose container ran through?"""
        after = self.pods()
        return all(after[name][0] != before[name][0] and after[name][1] == 0 for name in self.names)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, kubectl: Path) -> Iterator[UpgradeSite]:
    state = tmp_path_factory.mktemp("dev")
    started = cli("dev", "up", "--state", str(state))
    try:
        assert started.returncode == 0, started.stderr
        (state / "images.json").write_text(json.dumps(IMAGES))
        made = UpgradeSite(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        made.kubectl("apply", "-f", "-", stdin=SUPER_CLUSTER)
        made.kubectl(
            "apply", "-f", "-", stdin={**EAST, "spec": {**EAST["spec"], "replicas": 3, "image": OLDEST}}
        )
        made.kubectl("wait", "--for=condition=Ready", "ncl/east", "--timeout=90s")
        for name in STREAMS:
            made.declare(name, placement={"preferredLeader": "east-1"})
            made.ready(name)
        yield made
    finally:
        assert cli("dev", "down", "--state", str(state)).returncode == 0


@pytest.mark.covers("OP-3", "MV-5", "SF-1")
def test_another_version_comes_broker_by_broker_under_load_and_nothing_is_lost(site: UpgradeSite) -> None:
    assert set(site.versions().values()) == {"0.0.1"}
    before = site.pods()
    with ExitStack() as load:
        publishers = [load.enter_context(publishing(site, name, set())) for name in STREAMS]
        site.upgrade(OLDER)
        site.wait(lambda: set(site.pods().values()) != set(before.values()), "it to be begun")
        site.wait_for_all("0.0.2")
        assert min(publisher.acknowledged for publisher in publishers) > MESSAGES_LEAST, (
            "it went on all the time"
        )
    assert site.is_replaced(before), "every broker was restarted once"
    assert {"HandingOverLeaderships", "RestartingBroker"} <= site.events("east")
    assert "RolloutStopped" not in site.events("east")


@pytest.mark.long
@pytest.mark.covers("OP-3", "MV-5", "SF-1")
def test_a_supervised_upgrade_waits_for_a_person_before_every_broker_with_two_versions_in_its_middle(
    site: UpgradeSite,
) -> None:
    before, name = site.pods(), "guarded"
    site.declare(name)
    site.ready(name)

    updated: list[str] = []
    with publishing(site, name, set()) as publisher:
        site.upgrade(NEW, mode="Supervised")
        while len(updated) < len(site.names):
            approval = site.wait_for_question()
            broker = approval.rpartition("/")[2]
            assert broker not in updated
            site.watch_some_rounds("Cluster")
            assert site.versions() == {
                each: VERSION if each in updated else "0.0.2" for each in site.names
            }, "nobody is restarted unasked"
            site.wait_for_refusal(set(site.names) - set(updated))
            site.kubectl(
                "annotate", "ncl", "east", "--overwrite", f"supercluster.dev/approve-restart={approval}"
            )
            site.wait_for_restart(broker, before[broker][0])
            updated.append(broker)
            site.wait_for_more(publisher)
        site.wait_for_all(VERSION)
    assert site.is_replaced(before), "every broker was restarted once"
    site.wait(lambda: site.cordon("PUT")[0] == 200, "all to be able to read it")
    assert site.cordon("DELETE")[0] == 200


@pytest.mark.long
@pytest.mark.covers("OP-3", "SF-1")
def test_the_way_back_ends_at_the_first_broker_once_the_map_has_what_older_ones_cannot_read(
    site: UpgradeSite,
) -> None:
    """Behind the test before, whose cordon has raised the level of the map."""
    before, name = site.pods(), "way-back"
    site.declare(name)
    site.ready(name)
    with publishing(site, name, set()) as publisher:
        site.upgrade(OLDER, mode="Automatic", waitTimeout="10s")
        site.wait(
            lambda: site.condition("ncl", "east", "Blocked").get("reason") == "StreamsNotWhole",
            f"it to be said, of {site.synced()}",
        )
        (refused,) = {name for name, pod in site.pods().items() if pod[0] != before[name][0]}
        assert site.versions() == {each: "0.0.2" if each == refused else VERSION for each in site.names}
        told = site.condition("ncl", "east", "Blocked")["message"]
        assert f"stream {min(STREAMS)} lacks its replica on {refused}" in told
        assert "has no leader" not in told
        site.watch_some_rounds("Cluster")
        assert sum(pod[0] != before[name][0] for name, pod in site.pods().items()) == 1, "it ends there"
        site.upgrade(NEW)
        site.wait_for_all(VERSION)
        site.wait_for_more(publisher)
    assert sum(pod[0] != before[name][0] for name, pod in site.pods().items()) == 1
