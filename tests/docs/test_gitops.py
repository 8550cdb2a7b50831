"""The health check that the guide to GitOps gives Argo CD, on statuses as the operator writes them. Argo CD runs Lua 5.1."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime
from tests.conftest import ROOT
from tests.reconcilers.builders import NOW
from tests.support.guides import blocks

from supercluster.reconcilers.planners.kstatus import with_kstatus

GUIDE = (ROOT / "docs/guides/gitops.md").read_text(encoding="utf-8")
READY = ("Ready", "True", "Serving")
SYNCED = ("Synced", "True", "AsDeclared")
ACCEPTED = ("Accepted", "True", "AsDeclared")


def health(body: dict[str, Any]) -> tuple[str, str]:
    """What Argo CD would show of this object."""
    (customizations,) = re.findall(r"  resource\.customizations: \|\n(?:    .*\n|\n)+", GUIDE)
    checks = yaml.safe_load(yaml.safe_load(customizations)["resource.customizations"])
    lua = LuaRuntime()
    check = lua.eval(f"function(obj) {checks['supercluster.dev/*']['health.lua']} end")
    found = check(lua.table_from(body, recursive=True))
    return found["status"], found["message"]


def body(*conditions: tuple[str, str, str], generation: int = 3) -> dict[str, Any]:
    entries = [{"type": t, "status": s, "reason": r, "message": f"{t} says"} for t, s, r in conditions]
    made: dict[str, Any] = {
        "metadata": {"name": "it", "generation": 3},
        "status": {"conditions": entries, "observedGeneration": generation},
    }
    made["status"] |= with_kstatus(made, None, NOW) or {}
    return made


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ((READY, ACCEPTED, SYNCED), ("Healthy", "")),
        ((READY, ("Whole", "False", "ReplicasCatchingUp"), SYNCED), ("Healthy", "")),
        ((("Ready", "False", "NoLeader"), SYNCED), ("Progressing", "Ready says")),
        ((READY, ("Synced", "False", "RollingOut")), ("Progressing", "Synced says")),
        ((READY, ("Synced", "False", "RolloutStopped")), ("Degraded", "Synced says")),
        ((READY, SYNCED, ("Blocked", "True", "NotProvenSafe")), ("Healthy", "")),
        (
            (("Accepted", "False", "SubjectsOverlap"), ("Ready", "False", "NotAccepted")),
            ("Degraded", "Accepted says"),
        ),
        ((("Complete", "False", "Queued"),), ("Progressing", "Complete says")),
        ((("Complete", "True", "Moved"),), ("Healthy", "")),
        ((("Complete", "False", "Refused"),), ("Degraded", "Complete says")),
        ((("Complete", "False", "AwaitingApproval"),), ("Suspended", "Complete says")),
        ((("Ready", "False", "AwaitingApproval"), ACCEPTED), ("Suspended", "Ready says")),
    ],
)
def test_a_resource_is_as_healthy_as_its_conditions_say(
    conditions: tuple[tuple[str, str, str], ...], expected: tuple[str, str]
) -> None:
    assert health(body(*conditions)) == expected


def test_a_resource_that_the_operator_has_not_seen_is_progressing() -> None:
    waiting = ("Progressing", "waiting for the operator")
    assert health({"metadata": {"name": "it", "generation": 1}}) == waiting
    assert health({"metadata": {"name": "it", "generation": 1}, "status": {}}) == waiting
    assert health(body(READY, ACCEPTED, SYNCED, generation=2)) == waiting


def test_the_guides_manifests_can_be_read() -> None:
    for block in blocks(GUIDE, "yaml"):
        assert yaml.safe_load(block)
