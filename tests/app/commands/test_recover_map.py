"""`supercluster recover meta`: what it shows, what it asks of which broker, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from tests.app.test_operator_on_the_plane import cli

from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.recover_map import MapWish, recover_map
from supercluster.app.commands.recover_stream import RecoverError
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json

TARGET = BrokerTarget("ns", "demo", (), "operator", "secret", ("http://10.0.0.1:8222",))
MONITORS = {"east-0": "http://10.0.0.1:8222", "east-1": "http://10.0.0.2:8222"}
COPY: dict[str, Any] = {
    "node": "east-0",
    "lineage": "meta",
    "lost": False,
    "doubtful": False,
    "open": True,
    "votes": True,
    "lastTerm": 3,
    "lastIndex": 140,
    "committedIndex": 138,
}


class Admin(BrokerAdmin):
    """Brokers that answer what they were told, and remember who was asked what."""

    def __init__(self, silent: str = "", **answer: Any) -> None:
        super().__init__()
        self.answer = answer
        self.silent = silent
        self.calls: list[tuple[str, Any]] = []

    async def map_recovery_state(self, target: BrokerTarget) -> Json:
        (url,) = target.monitors
        self.calls.append((url, None))
        if url == self.silent:
            raise BrokersUnreachableError("nobody answers")
        return self.answer

    async def recover_map(self, target: BrokerTarget, body: Mapping[str, Any]) -> Json:
        (url,) = target.monitors
        self.calls.append((url, dict(body)))
        return self.answer


@pytest.mark.covers("RP-8")
async def test_without_a_broker_each_is_asked_about_its_own_copy() -> None:
    answer = {"copies": [COPY], "outOfContact": ["east-2"], "alive": "", "mayLose": "what is behind 138"}
    admin = Admin(silent=MONITORS["east-1"], kept=[{"group": "S.$G.x.1"}], **answer)
    possible, text, told = await recover_map(admin, TARGET, MONITORS, MapWish())
    assert possible
    assert told["brokers"].keys() == MONITORS.keys()
    assert told["brokers"]["east-0"]["copies"] == [COPY]
    assert "error" in told["brokers"]["east-1"]
    assert [url for url, _ in admin.calls] == list(MONITORS.values())
    _, row, *rest = text.splitlines()
    assert row.split() == ["east-0", "meta", "140", "138", "3", "votes"]
    assert rest == [
        "voters that are out of contact: east-2",
        "east-0: what is behind 138",
        "east-0: keeps a copy of S.$G.x.1",
        "east-1: nobody answers",
    ]


@pytest.mark.covers("RP-8")
async def test_the_broker_itself_is_asked_and_says_what_may_be_lost() -> None:
    admin = Admin(lineage="meta~1f", recovery={"mayLose": "the end"})
    possible, text, _ = await recover_map(admin, TARGET, MONITORS, MapWish("east-1", 140, accepts_doubt=True))
    assert (possible, text) == (True, "lineage meta~1f: the end")
    ((url, body),) = admin.calls
    assert url == MONITORS["east-1"]
    assert body.pop("id").startswith("cli-")
    assert body == {"node": "east-1", "acceptLastIndex": 140, "acceptDoubtful": True}


async def test_a_dry_run_says_a_refusal_and_a_broker_without_a_pod_is_named() -> None:
    admin = Admin(copies=[COPY], refusal="it ends before", mayLose="")
    possible, text, _ = await recover_map(admin, TARGET, MONITORS, MapWish("east-0", 150, dry_run=True))
    assert not possible
    assert text.endswith("refused: it ends before")
    assert admin.calls[0][1]["dryRun"] is True
    with pytest.raises(
        RecoverError, match="east-9 has no pod with an address; brokers that have one: east-0, east-1"
    ):
        await recover_map(admin, TARGET, MONITORS, MapWish("east-9", 150))


async def test_a_broker_is_told_to_follow_another_lineage() -> None:
    admin = Admin(lineage="meta~1f")
    possible, text, _ = await recover_map(admin, TARGET, MONITORS, MapWish("east-1", follow="meta~2e"))
    assert possible
    assert "follows meta~2e; it had meta~1f" in text
    assert admin.calls[0][1] == {"node": "east-1", "follow": "meta~2e", "dryRun": False}


def test_wrong_arguments_are_named() -> None:
    for arguments in (("meta", "--node", "east-0"), ("meta", "orders"), ("stream",)):
        told = cli("recover", *arguments, "--kubeconfig", "/nonexistent")
        assert told.returncode == 2, told.stderr
