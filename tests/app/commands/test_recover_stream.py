"""`supercluster recover stream`: what it shows, what it asks of the brokers, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from tests.app.test_operator_on_the_plane import cli

from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.recover_stream import RecoverError, Wish, described, recover
from supercluster.reconcilers.ports import BrokersRefusedError, BrokerTarget, Json

TARGET = BrokerTarget("ns", "demo", (), "operator", "secret", ("http://127.0.0.1:1",))
COPY: dict[str, Any] = {
    "node": "east-0",
    "lineage": 0,
    "lost": False,
    "doubtful": True,
    "open": True,
    "lastTerm": 3,
    "lastIndex": 140,
    "lastSeq": 120,
    "committedSeq": 118,
    "mayLose": "other messages that were confirmed after 118 may be lost",
}


class Admin(BrokerAdmin):
    """Brokers that answer what they were told, and remember what they were asked."""

    def __init__(self, **answer: Any) -> None:
        super().__init__()
        self.answer = answer
        self.calls: list[tuple[Any, ...]] = []

    async def recovery_state(self, target: BrokerTarget, name: str) -> Json:
        self.calls.append(("state", name))
        return self.answer

    async def plan_recovery(self, target: BrokerTarget, name: str, node: str, accepted_sequence: int) -> Json:
        self.calls.append(("plan", name, node, accepted_sequence))
        return self.answer

    async def recover_stream(
        self, target: BrokerTarget, name: str, node: str, accepted_sequence: int, recovery_id: str
    ) -> Json:
        self.calls.append(("recover", name, node, accepted_sequence))
        return self.answer


async def test_a_stream_that_the_brokers_do_not_have_is_named() -> None:
    class Without(Admin):
        async def recovery_state(self, target: BrokerTarget, name: str) -> Json:
            raise BrokersRefusedError(404, 10059, "stream not found")

    with pytest.raises(RecoverError, match="the brokers have no stream nope; `supercluster status` lists"):
        await recover(Without(), TARGET, Wish("nope"))


@pytest.mark.covers("RP-8")
async def test_without_a_broker_the_copies_are_shown_and_nothing_is_done() -> None:
    admin = Admin(copies=[COPY], outOfContact=["east-1", "east-2"], alive="")
    possible, text, told = await recover(admin, TARGET, Wish("rec"))
    assert possible
    assert told == {"copies": [COPY], "outOfContact": ["east-1", "east-2"], "alive": ""}
    assert admin.calls == [("state", "rec")]
    header, row, *rest = text.splitlines()
    assert header.split("  ")[0] == "BROKER"
    assert row.split() == ["east-0", "0", "120", "118", "3", "140", "doubtful"]
    assert rest == ["out of contact: east-1, east-2", f"east-0: {COPY['mayLose']}"]


async def test_a_dry_run_asks_for_the_plan_alone_and_says_a_refusal() -> None:
    admin = Admin(copies=[COPY], alive="", refusal="it ends before", mayLose="")
    possible, text, _ = await recover(admin, TARGET, Wish("rec", "east-0", 121, dry_run=True))
    assert not possible
    assert text.endswith("refused: it ends before")
    assert admin.calls == [("plan", "rec", "east-0", 121)]


async def test_it_is_forced_and_says_what_may_be_lost_and_who_declares_the_stream() -> None:
    admin = Admin(lineage=1, declaredBy="ns/rec", recovery={"mayLose": "the end"})
    possible, text, _ = await recover(admin, TARGET, Wish("rec", "east-0", 120))
    assert possible
    assert admin.calls == [("recover", "rec", "east-0", 120)]
    assert text.startswith("lineage 1: the end")
    assert "supercluster.dev/force-recover" in text


def test_a_stream_that_lives_says_why_nothing_has_to_be_forced() -> None:
    assert described({"copies": [], "alive": "it has a leader"}).splitlines() == [
        "no broker in contact has a copy",
        "nothing has to be forced: it has a leader",
    ]


def test_a_broker_without_a_sequence_is_a_wrong_argument() -> None:
    told = cli("recover", "stream", "rec", "--node", "east-0", "--kubeconfig", "/nonexistent")
    assert told.returncode == 2
