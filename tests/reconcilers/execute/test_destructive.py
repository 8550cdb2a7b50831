"""One module destroys, with a rule for every ground."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from supercluster.reconcilers.execute import checks, destructive
from supercluster.reconcilers.execute.destructive import RULES, Loss, shrinking
from supercluster.reconcilers.planners.plan import Ground

RECONCILERS = Path(destructive.__file__).resolve().parents[1]
DESTROYING = frozenset({"delete", "delete_stream", "leave_broker"})


def calls(path: Path) -> set[str]:
    """Methods of what is called `…kube` or `…brokers` that destroy."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner = ast.unparse(node.func.value).rpartition(".")[2]
        if owner in ("kube", "brokers") and node.func.attr in DESTROYING:
            found.add(node.func.attr)
    return found


@pytest.mark.covers("SF-30")
def test_nothing_is_destroyed_from_anywhere_else() -> None:
    found = {str(path.relative_to(RECONCILERS)): calls(path) for path in RECONCILERS.rglob("*.py")}
    assert found.pop("execute/destructive.py") == DESTROYING
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.covers("SF-30")
def test_every_ground_has_a_rule_and_whatever_may_take_data_asks_who_is_known() -> None:
    assert set(RULES) == set(Ground)
    harmless = {Ground.MOVE_NOT_NEEDED, Ground.RESTART, Ground.DRIVER_REPLACED}
    for ground in set(Ground) - harmless:
        assert checks.members_are_known in RULES[ground], ground
    for ground in (
        Ground.CLUSTER_DELETED,
        Ground.BROKER_DRAINED,
        Ground.BROKERS_PARTED,
        Ground.BROKERS_GONE,
    ):
        assert checks.is_of_the_cluster in RULES[ground], ground


def test_what_an_apply_leaves_out() -> None:
    def stateful_set(replicas: int) -> dict[str, object]:
        return {"kind": "StatefulSet", "metadata": {"name": "east"}, "spec": {"replicas": replicas}}

    def config(text: str) -> dict[str, object]:
        return {"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"broker.json": text}}

    assert shrinking(stateful_set(5), stateful_set(3)) == Loss(brokers=("east-3", "east-4"))
    assert shrinking(stateful_set(3), stateful_set(3)) is None
    assert shrinking(stateful_set(3), stateful_set(5)) is None
    before = config('{"gateways": {"west": [], "north": []}, "peers": {"east-0": "a", "east-1": "b"}}')
    after = config('{"gateways": {"north": []}, "peers": {"east-0": "a"}}')
    assert shrinking(before, after) == Loss(("west",), ("east-1",))
    assert shrinking(after, before) is None
    assert shrinking(config("not JSON"), after) is None
    assert shrinking({"kind": "Service"}, {"kind": "Service"}) is None
