"""`supercluster users rotate`: what it asks for, what it refuses, and how it follows a rotation (CL-5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.app.commands.users.objects import READY, Kube, condition, user, user_secret
from tests.support.command_line import run_line

from supercluster.app.commands.errors import (
    EXIT_FAILED,
    EXIT_NOT_READY,
    EXIT_OK,
    EXIT_USAGE,
    CommandError,
    NotReadyError,
)
from supercluster.app.commands.users import rotation
from supercluster.app.commands.users.find import UsersError
from supercluster.reconcilers.ports import Json

pytestmark = pytest.mark.covers("CL-5")

ROTATE = "supercluster.dev/rotate"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rotation, "POLL_S", 0.0)


async def run(kube: Kube, *words: str) -> int:
    return await run_line(kube.client, "users", *words)


async def rotate(kube: Kube, *words: str) -> int:
    return await run(kube, "rotate", "billing", *words)


def status(**fields: Any) -> Callable[[Json], None]:
    """The operator writes it, of the spec as it is."""

    def write(body: Json) -> None:
        body["status"].update({"observedGeneration": body["metadata"]["generation"], **fields})

    return write


def stage(name: str, told: str, **fields: Any) -> Callable[[Json], None]:
    changed = [*READY[:4], condition("Progressing", "True", name, told)]
    return status(rotation={"stage": name, **fields}, conditions=changed)


def rest(**fields: Any) -> Callable[[Json], None]:
    return status(rotation=None, conditions=list(READY), **fields)


async def test_each_call_asks_for_another_rotation_by_the_time() -> None:
    kube = Kube(user())
    assert await rotate(kube) == EXIT_OK
    first = kube.user()["metadata"]["annotations"][ROTATE]
    assert first.startswith("20")
    assert "spec" not in kube.patches[0]
    assert await rotate(kube) == EXIT_OK
    assert kube.user()["metadata"]["annotations"][ROTATE] != first


async def test_a_deadline_is_set_with_the_annotation_at_once() -> None:
    kube = Kube(user())
    assert await rotate(kube, "--deadline-after", "24h") == EXIT_OK
    (patch,) = kube.patches
    assert ROTATE in patch["metadata"]["annotations"]
    assert patch["spec"] == {"rotation": {"deadlineAfter": "24h"}}


@pytest.mark.parametrize("text", ["0s", "soon", "1.5h", "90"])
async def test_a_deadline_that_is_no_time_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert await rotate(Kube(user()), "--deadline-after", text) == EXIT_USAGE
    told = f"Invalid value for '--deadline-after': '{text}' is not a period such as 90m, 24h or 7d"
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (user(rotation={"stage": "ClientsRolling"}), "one is under way, in stage ClientsRolling"),
        (user(spec={"rotation": {"suspend": True}}), "spec.rotation.suspend is true.*--resume"),
        (user(spec={"rotation": {"cancel": True}}), "spec.rotation.cancel is true.*--resume"),
        (
            user(conditions=[condition("Ready", "False", "CredentialIntroducing", "east-0 is late")]),
            "not Ready: east-0 is late",
        ),
        (user(conditions=[]), "not Ready: the operator has not looked at it yet"),
        (user(observedGeneration=0), "has not seen its newest spec yet"),
        (
            user(conditions=[READY[0], condition("Accepted", "False", "NotAdopted", "set spec.adopt")]),
            "not accepted: set spec.adopt",
        ),
        (
            user(spec={"authentication": {"passwordFrom": {"name": "mine", "key": "word"}}}),
            "change the key word of Secret mine",
        ),
        (
            user(spec={"authentication": {"type": "NKey", "publicKey": "UABC"}}),
            "change spec.authentication.publicKey",
        ),
        (user(spec={"rotation": {"deadline": "2026-01-01T00:00:00Z"}}), "2026-01-01T00:00:00Z is over"),
    ],
)
async def test_what_keeps_a_rotation_from_beginning_is_named(body: Json, words: str) -> None:
    kube = Kube(body)
    with pytest.raises(UsersError, match=words):
        await rotate(kube)
    assert not kube.patches


async def test_one_that_begins_between_look_and_change_is_not_asked_for_twice() -> None:
    kube = Kube(user())
    looks = [lambda body: None, status(rotation={"stage": "Introducing"})]
    kube.looked = looks
    kube.conflicts = 1
    with pytest.raises(UsersError, match="one is under way, in stage Introducing"):
        await rotate(kube)
    assert not kube.patches


async def test_a_user_that_others_change_meanwhile_is_judged_anew() -> None:
    kube = Kube(user())
    kube.conflicts = 3
    assert await rotate(kube) == EXIT_OK
    assert len(kube.patches) == 1
    kube.conflicts = rotation.TRIES_MAX
    with pytest.raises(UsersError, match="changed by others"):
        await rotate(kube)


async def test_an_unknown_user_is_named_with_the_nearest_one() -> None:
    with pytest.raises(UsersError, match="no User billign in namespace ns; did you mean billing"):
        await run(Kube(user()), "rotate", "billign")
    with pytest.raises(UsersError, match="known are billing, orders"):
        await run(Kube(user(), user("orders")), "show", "x")
    with pytest.raises(UsersError, match="there is none"):
        await run(Kube(), "show", "x")


async def test_a_rotation_is_followed_line_by_line_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    kube = Kube(user())
    same = stage("ClientsRolling", "2 connections show the former credential")
    kube.looked = [
        lambda body: None,
        lambda body: None,
        stage("Introducing", "brokers that have not said: east-0"),
        status(credential=2),
        *(same, same),
        stage("ClientsRolling", "0 connections show the former credential"),
        stage("Withdrawing", "brokers that still accept the former credential: east-1"),
        rest(credential=2),
    ]
    assert await rotate(kube, "--wait") == EXIT_OK
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [
        "Introducing: brokers that have not said: east-0",
        "ClientsRolling: 2 connections show the former credential",
        "ClientsRolling: 0 connections show the former credential",
        "Withdrawing: brokers that still accept the former credential: east-1",
    ]
    assert printed.out.splitlines()[-1] == (
        "user/billing: credential 2 is in force, and no broker accepts credential 1"
    )
    assert not kube.looked


async def test_a_rotation_that_is_not_seen_yet_is_no_end() -> None:
    """Neither is a status of before it, nor steps that are still to be carried out."""
    kube = Kube(user())
    going = [*READY[:3], condition("Synced", "False", "Applying")]
    kube.looked = [
        lambda body: None,
        rest(),
        status(conditions=going, credential=2),
        rest(credential=2),
    ]
    assert await rotate(kube, "--wait") == EXIT_OK
    assert not kube.looked


@pytest.mark.parametrize(
    ("looks", "words"),
    [
        ([stage("Introducing", "…"), rest()], "the rotation was taken back: credential 1 is in force"),
        (
            [status(conditions=[condition("Accepted", "False", "InvalidDeadline", "it is over")])],
            "no rotation goes on: it is over",
        ),
    ],
)
async def test_a_rotation_that_comes_to_nothing_ends_with_one(
    looks: list[Callable[[Json], None]], words: str
) -> None:
    kube = Kube(user())
    kube.looked = [lambda body: None, *looks]
    with pytest.raises(CommandError, match=f"^User billing: {words}") as caught:
        await rotate(kube, "--wait")
    assert caught.value.code == EXIT_FAILED


async def test_a_rotation_that_takes_too_long_ends_with_three_and_what_it_waits_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kube = Kube(user())
    kube.looked = [lambda body: None, stage("ClientsRolling", "…", connections=1)]
    with pytest.raises(NotReadyError, match=r"did not end within 0\.1 s") as caught:
        await rotate(kube, "--wait", "--timeout", "0.1")
    assert caught.value.code == EXIT_NOT_READY
    printed = capsys.readouterr()
    assert "next: have these clients read Secret demo-user-billing again" in printed.out


async def test_a_broker_that_is_away_is_told_of_beforehand(capsys: pytest.CaptureFixture[str]) -> None:
    away = condition("Whole", "False", "BrokersUnreachable", "brokers that do not answer: east-2")
    assert await rotate(Kube(user(conditions=[READY[0], away]))) == EXIT_OK
    assert "it will wait for a broker: brokers that do not answer: east-2" in capsys.readouterr().err


async def test_a_rotation_is_held_taken_back_and_let_go_on() -> None:
    kube = Kube(user(rotation={"stage": "ClientsRolling"}))
    assert await rotate(kube, "--suspend") == EXIT_OK
    assert kube.patches[-1]["spec"] == {"rotation": {"suspend": True}}
    assert await rotate(kube, "--cancel") == EXIT_OK
    assert kube.patches[-1]["spec"] == {"rotation": {"cancel": True, "suspend": False}}
    with pytest.raises(UsersError, match="taken back or held, not both"):
        await rotate(kube, "--suspend")
    assert await rotate(kube, "--resume") == EXIT_OK
    assert kube.patches[-1]["spec"] == {"rotation": {"suspend": False, "cancel": False}}
    with pytest.raises(UsersError, match="neither suspended nor cancelled"):
        await rotate(kube, "--resume")
    assert all("annotations" not in each["metadata"] for each in kube.patches)


async def test_taking_back_is_followed_until_the_former_credential_alone_is_in_force(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kube = Kube(user(rotation={"stage": "ClientsRolling"}, credential=2))
    kube.looked = [
        lambda body: None,
        lambda body: None,
        stage("ClientsRolling", "1 connection shows the former credential", former=2),
        rest(credential=1),
    ]
    assert await rotate(kube, "--cancel", "--wait") == EXIT_OK
    assert "no rotation is under way; credential 1 is in force" in capsys.readouterr().out
    assert not kube.looked


async def test_there_is_no_end_of_what_stands_still(capsys: pytest.CaptureFixture[str]) -> None:
    kube = Kube(user())
    assert await rotate(kube, "--suspend", "--wait") == EXIT_USAGE
    assert not kube.patches
    assert await rotate(kube, "--cancel", "--deadline-after", "1h") == EXIT_USAGE
    assert "give one of --deadline-after, --cancel," in capsys.readouterr().err


async def test_no_secret_is_read() -> None:
    kube = Kube(user(), user_secret(current=1))
    await rotate(kube)
    await run(kube, "show", "billing")
    assert {kind for kind, _ in kube.asked} == {"User"}
