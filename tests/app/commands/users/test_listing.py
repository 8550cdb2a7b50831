"""`supercluster users list` and `show` (CL-5)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.app.commands.users.objects import READY, SUPER_CLUSTER, Kube, condition, user
from tests.support.command_line import run_line

from supercluster.api import User
from supercluster.app.commands import overview
from supercluster.app.commands.errors import EXIT_OK
from supercluster.app.commands.users import listing
from supercluster.app.commands.users.find import UsersError

pytestmark = pytest.mark.covers("CL-5")

NOW = datetime(2026, 7, 1, 12, 0, 0, tzinfo=UTC)
ROLLING: dict[str, Any] = {
    "stage": "ClientsRolling",
    "former": 1,
    "startedAt": "2026-07-01T10:30:00Z",
    "deadline": "2026-07-02T12:00:00Z",
    "connections": 3,
    "clients": [{"address": "10.0.0.9", "name": "worker", "client": "go 1.40", "connections": 2}],
    "waitsFor": ["east-0", "east-1"],
}
PROGRESSING = condition("Progressing", "True", "ClientsRolling", "3 connections show the former credential")


def described(**fields: Any) -> list[str]:
    return listing.described(User.model_validate(user(**fields)), NOW).splitlines()


def next_step(**fields: Any) -> str:
    return listing.next_step(User.model_validate(user(**fields)))


async def run(kube: Kube, *words: str) -> int:
    return await run_line(kube.client, "users", *words)


def test_the_table_has_credential_rotation_and_secret_of_each() -> None:
    late = condition("Ready", "False", "CredentialIntroducing")
    found = [
        user(spec={"account": "ORDERS", "name": "b"}, rotation=ROLLING, credential=2),
        user("orders", conditions=[late], credential=None, since=None, secret=None),
        user("new", observedGeneration=0),
    ]
    header, *rows = listing.table([User.model_validate(each) for each in found], NOW).splitlines()
    assert header.split("  ")[0] == "NAME"
    assert [" ".join(row.split()) for row in rows] == [
        "billing ORDERS b True AcceptedByBrokers 2 1h ClientsRolling 3 demo-user-billing",
        "orders $G orders False CredentialIntroducing - - - - -",
        "new $G new Unknown - 1 1h - - demo-user-new",
    ]


async def test_a_list_is_of_one_super_cluster_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = user("other", spec={"superCluster": "second"})
    kube = Kube(SUPER_CLUSTER, user("billing"), user("a"), other)
    assert await run(kube, "list", "--super-cluster", "demo", "-o", "json") == EXIT_OK
    found = json.loads(capsys.readouterr().out)
    assert [each["metadata"]["name"] for each in found] == ["a", "billing"]
    assert "managedFields" not in found[0]["metadata"]
    assert await run(kube, "list") == EXIT_OK
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "NAME",
        "a",
        "billing",
        "other",
    ]
    with pytest.raises(UsersError, match="no SuperCluster dmo in namespace ns; did you mean demo"):
        await run(kube, "list", "--super-cluster", "dmo")
    assert await run(Kube(), "list") == EXIT_OK
    assert "no Users in namespace ns" in capsys.readouterr().err


def test_a_user_at_rest_is_shown_in_a_few_lines() -> None:
    permissions = {
        "publish": {"allow": ["orders.>"], "deny": ["orders.secret"]},
        "subscribe": {"allow": []},
        "responses": {"max": 2, "ttl": "1m"},
    }
    spec = {"permissions": permissions, "limits": {"connectionsMax": 10, "payloadMax": "64Ki"}}
    assert described(spec=spec, connections=4) == [
        "billing: user billing of account $G, SuperCluster demo",
        "credential: 1, since 2026-07-01T11:00:00Z (1h), in Secret demo-user-billing",
        "connections: 4",
        "permissions: publish orders.> but orders.secret; subscribe nothing; 2 answers to each request within 1m",
        "limits: 10 connections to each broker, 64Ki bytes of each message",
        "next: nothing",
    ]
    assert "permissions: everything in its account" in described()
    assert "limits: none" in described()


def test_a_rotation_is_shown_with_whom_it_waits_for() -> None:
    warning = condition("Warning", "True", "DeadlineNear", "3 connections are cut off")
    lines = described(conditions=[*READY[:4], PROGRESSING, warning], rotation=ROLLING, credential=2)
    assert lines[5:] == [
        "Warning is True: DeadlineNear: 3 connections are cut off",
        "",
        "rotation: ClientsRolling, from credential 1, clients have been rolling for 1h30m",
        "  3 connections show the former credential",
        "deadline: 2026-07-02T12:00:00Z (in 1d)",
        "waits for brokers: east-0, east-1",
        "ON FORMER  ADDRESS   CLIENT   CONNECTIONS",
        "worker     10.0.0.9  go 1.40  2",
        "and 1 more, which is not named",
        "next: have these clients read Secret demo-user-billing again and reconnect; `supercluster users who-uses billing` follows them",
    ]
    over = described(rotation={**ROLLING, "deadline": "2026-07-01T11:00:00Z"})
    assert "deadline: 2026-07-01T11:00:00Z (it has passed)" in over
    assert "deadline: none; the former credential stays until nobody shows it" in described(
        rotation={"stage": "ClientsRolling"}
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"observedGeneration": 0}, "wait: the operator has not seen"),
        ({"conditions": [condition("Accepted", "False", "NotAdopted", "…")]}, "correct what Accepted names"),
        ({"conditions": [condition("Ready", "False", "CredentialIntroducing")]}, "see what Ready names"),
        ({"spec": {"rotation": {"suspend": True}}}, "--resume` lets rotations begin again"),
        ({"spec": {"rotation": {"suspend": True}}, "rotation": ROLLING}, "--resume` lets the rotation go on"),
        ({"spec": {"rotation": {"cancel": True}}}, "--resume` lets rotations begin again"),
        ({"rotation": {"stage": "Introducing"}}, "wait a moment"),
        ({"rotation": {"stage": "Introducing", "waitsFor": ["east-1"]}}, "kubectl logs east-1"),
        ({"rotation": {"stage": "Withdrawing", "waitsFor": ["east-1"]}}, "kubectl logs east-1"),
        ({"rotation": {"stage": "ClientsRolling", "connections": 1}}, "have these clients read Secret"),
        (
            {"rotation": {"stage": "ClientsRolling", "waitsFor": ["east-1"]}},
            "has seen the former credential for 2m",
        ),
    ],
)
def test_what_to_do_next_is_one_sentence(fields: dict[str, Any], words: str) -> None:
    told = next_step(**fields)
    assert words in told
    assert "\n" not in told


def test_a_user_that_is_deleted_says_what_holds_it_up() -> None:
    body = user(conditions=[condition("Ready", "False", "UserInUse")])
    body["metadata"]["deletionTimestamp"] = "2026-07-01T11:00:00Z"
    assert "spec.deletionPolicy" in listing.next_step(User.model_validate(body))
    body["status"]["conditions"] = [condition("Ready", "False", "Deleting")]
    assert listing.next_step(User.model_validate(body)) == "wait: the User is being deleted"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0s"), (0.4, "0s"), (59, "59s"), (61, "1m1s"), (3_600, "1h"), (90_061, "1d1h"), (864_000, "10d")],
)
def test_a_span_has_its_two_largest_units(seconds: float, text: str) -> None:
    assert listing.span_text(seconds) == text


def test_the_status_of_all_shows_a_user_at_rest_without_a_note() -> None:
    row = overview.row("User", user(spec={"account": "ORDERS"}))
    assert (row.ready, row.what, row.note) == ("True", "billing of ORDERS, credential 1", "")
    rolling = overview.row("User", user(conditions=[*READY[:4], PROGRESSING], rotation=ROLLING, credential=2))
    assert rolling.what == "billing of $G, credential 2, ClientsRolling, 3 on the former one"
    assert rolling.note == ""
