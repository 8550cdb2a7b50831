"""Maintenance windows, end to end: the operator's wall clock is the test's, all else is as a user has it (MV-13)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests.app.test_operator_on_the_plane import Site, cli
from tests.conftest import eventually, kubectl_runner
from tests.support.operator_with_clock import set_clock

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

API = "supercluster.dev/v1alpha1"
TIMEOUT_S = 60.0
# Half past two in the morning: on the day on which summer time ends there are two of them, on that on which it begins none.
WINDOW = {"cron": "30 2 * * *", "durationMinutes": 10, "timeZone": "Europe/Berlin"}


class WindowSite(Site):
    """Two clusters of one broker each, and an operator whose clock stands where it is put."""

    clock: Path

    def set(self, instant: str) -> None:
        set_clock(self.clock, datetime.fromisoformat(instant))

    def edit(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        self.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def status(self, move: str) -> dict[str, Any]:
        found = self.kubectl("get", "smv", move, "-o", "json", check=False)
        status: dict[str, Any] = json.loads(found.stdout).get("status", {}) if found.returncode == 0 else {}
        return status

    def wait_for(self, move: str, phase: str) -> dict[str, Any]:
        eventually(lambda: self.status(move).get("phase") == phase, f"{move} to be {phase}", TIMEOUT_S)
        return self.status(move)

    def is_held(self, move: str) -> dict[str, Any]:
        """The operator looks at the move by the clock as it is now, and holds it. It is made to look, so that what it says
        is no older."""
        self.edit("smv", move, {"suspend": True})
        self.wait_for(move, "Planned")
        self.edit("smv", move, {"suspend": False})
        held = self.wait_for(move, "AwaitingWindow")
        assert "startedAt" not in held
        return held


@pytest.fixture
def site(tmp_path: Path, kubectl: Path) -> Iterator[WindowSite]:
    state = tmp_path / "dev"
    clock = tmp_path / "clock"
    set_clock(clock, datetime.fromisoformat("2026-10-24T12:00:00Z"))
    started = cli("dev", "up", "--state", str(state), "--no-operator")
    operator = None
    try:
        assert started.returncode == 0, started.stderr
        argv = [sys.executable, "-m", "tests.support.operator_with_clock", str(clock)]
        argv += ["--kubeconfig", str(state / "kubeconfig"), "--listen", "127.0.0.1:0"]
        with (tmp_path / "operator.log").open("wb") as log:
            operator = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT)
        made = WindowSite(state, kubectl_runner(kubectl, state / "kubeconfig", state))
        made.clock = clock
        made.kubectl("apply", "-f", "-", stdin=_body("SuperCluster", "demo", {}))
        for name in ("east", "west"):
            spec = {"superCluster": "demo", "replicas": 1, "storage": {"size": "1Gi"}}
            made.kubectl("apply", "-f", "-", stdin=_body("Cluster", name, spec))
        for resource in ("ncl/east", "ncl/west", "scl/demo"):
            made.kubectl("wait", "--for=condition=Ready", resource, "--timeout=60s")
        yield made
    finally:
        if operator is not None:
            operator.terminate()
            operator.wait(30)
        assert cli("dev", "down", "--state", str(state)).returncode == 0


def _body(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": API,
        "kind": kind,
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


@pytest.mark.covers("MV-13")
def test_a_move_waits_for_its_window_on_the_wall_clock_of_its_zone_when_summer_time_ends_and_begins(
    site: WindowSite,
) -> None:
    site.declare("night", replicas=1, placement={"cluster": "east"}, move={"maintenanceWindow": WINDOW})
    site.ready("night")

    # Sunday 25 October: at three o'clock it is two again. The first half past two is over, the second is to come.
    site.set("2026-10-25T02:45:00+02:00")
    site.edit("str", "night", {"placement": {"cluster": "west"}})
    held = site.wait_for("night-g2", "AwaitingWindow")
    assert held["window"] == {"opensAt": "2026-10-25T01:30:00Z", "closesAt": "2026-10-25T01:40:00Z"}
    assert held["message"] == "the maintenance window opens at 2026-10-25T01:30:00Z"
    synced = site.condition("str", "night", "Synced")
    assert (synced["status"], synced["reason"]) == ("False", "Moving")
    site.set("2026-10-25T02:29:59+01:00")
    site.is_held("night-g2")
    site.set("2026-10-25T02:30:00+01:00")
    site.wait_for("night-g2", "Succeeded")
    assert site.get("str", "night")["status"]["leader"] == "west-0"

    # Sunday 28 March: at two o'clock it is three. There is no half past two, and the move waits for the next day's.
    site.set("2027-03-28T01:59:00+01:00")
    site.edit("str", "night", {"placement": {"cluster": "east"}})
    held = site.wait_for("night-g3", "AwaitingWindow")
    assert held["window"] == {"opensAt": "2027-03-29T00:30:00Z", "closesAt": "2027-03-29T00:40:00Z"}
    for instant in ("2027-03-28T03:30:00+02:00", "2027-03-29T02:29:59+02:00", "2027-03-29T02:40:00+02:00"):
        site.set(instant)
        held = site.is_held("night-g3")
    assert held["window"]["opensAt"] == "2027-03-30T00:30:00Z", (
        "closed again, ten minutes after it had opened"
    )
    site.set("2027-03-30T02:39:59+02:00")
    site.wait_for("night-g3", "Succeeded")
    eventually(lambda: site.get("str", "night")["status"]["leader"] == "east-0", "the leader to be told")
