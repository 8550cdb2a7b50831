"""`supercluster recover` as a user types it."""

from __future__ import annotations

import json

import pytest
from tests.app.commands.test_rebalance import CLUSTER, OPERATOR, pod, secret
from tests.app.commands.users.objects import Kube
from tests.support.command_line import run_line

from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK
from supercluster.reconcilers.ports import BrokerTarget, Json

pytestmark = pytest.mark.covers("RP-8")


class Admin(BrokerAdmin):
    """A stream that has a leader, and a map that has none."""

    async def recovery_state(self, target: BrokerTarget, name: str) -> Json:
        return {"copies": [], "alive": f"{name} has a leader"}

    async def map_recovery_state(self, target: BrokerTarget) -> Json:
        return {"copies": [], "alive": "", "mayLose": "the end"}


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        (("stream", "rec"), EXIT_FAILED, {"copies": [], "alive": "rec has a leader"}),
        (("meta",), EXIT_OK, {"brokers": {"east-0": {"copies": [], "alive": "", "mayLose": "the end"}}}),
    ],
)
async def test_what_brokers_say_is_json_with_the_same_exit_code_as_text(
    words: tuple[str, ...],
    code: int,
    found: Json,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("supercluster.app.admin.BrokerAdmin", Admin)
    broker = pod("east-0")
    broker["metadata"]["labels"] = {"supercluster.dev/cluster": "east"}
    kube = Kube(CLUSTER, secret(OPERATOR), broker).client
    assert await run_line(kube, "recover", *words, "-o", "json") == code
    assert json.loads(capsys.readouterr().out) == found
    assert await run_line(kube, "recover", *words) == code
    assert capsys.readouterr().out.startswith("no broker in contact has a copy\n")
