"""`supercluster users who-uses`: each broker is asked, and one that does not answer is named (CL-5)."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from tests.app.commands.users.objects import Kube, credentials, secret, user, user_secret
from tests.app.scripted import serving
from tests.support.command_line import run_line

from supercluster.app.admin import BrokerAdmin
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK
from supercluster.app.commands.users import connections
from supercluster.app.commands.users.find import UsersError, find
from supercluster.reconcilers.ports import BrokersUnreachableError, BrokerTarget, Json

pytestmark = pytest.mark.covers("CL-5")

LABELS = {"supercluster.dev/super-cluster": "demo", "supercluster.dev/cluster": "east"}
CLUSTER = {
    "apiVersion": "supercluster.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "east", "namespace": "ns", "uid": "u", "generation": 1},
    "spec": {"superCluster": "demo"},
}
STATEFUL_SET = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "east", "namespace": "ns", "labels": LABELS},
    "spec": {"replicas": 3},
}


def pod(name: str, ip: str = "", labels: dict[str, str] | None = None) -> Json:
    """Not ready: such a broker may have clients all the same."""
    metadata = {"name": name, "namespace": "ns", "labels": labels or LABELS}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": {"podIP": ip}}


def use(number: int, count: int, *clients: Json, idle_ms: int | None = 0, **fields: Any) -> Json:
    return {
        "account": "$G",
        "user": "billing",
        "credential": f"user-uid-billing.{number}",
        "inForce": True,
        "connections": count,
        "idleMs": idle_ms,
        "clients": list(clients),
        **fields,
    }


def client(name: str, count: int) -> Json:
    return {"address": "10.0.0.9", "name": name, "language": "go", "version": "1.40", "connections": count}


OTHER = {"account": "$G", "user": "operator", "credential": "", "connections": 1, "idleMs": 0}


class Admin(BrokerAdmin):
    """Brokers that say what they are to; by name."""

    def __init__(self, **answers: list[Json]) -> None:
        super().__init__()
        self.answers = answers
        self.asked: list[tuple[str, str, tuple[str, ...]]] = []

    async def credentials(self, target: BrokerTarget, users: Any = ()) -> Json:
        (name,) = target.brokers
        self.asked.append((name, target.password, tuple(users)))
        if name.replace("-", "_") not in self.answers:
            raise BrokersUnreachableError("no answer in 5 s")
        return {"broker": name, "shown": [*self.answers[name.replace("-", "_")], OTHER]}


@pytest.fixture
def asked_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    def use_admin(admin: Admin) -> Admin:
        monkeypatch.setattr("supercluster.app.admin.BrokerAdmin", lambda: admin)
        return admin

    return use_admin


def kube(*more: Json, **numbers: int) -> Kube:
    pods = (pod("east-0", "10.0.0.1"), pod("east-1", "10.0.0.2"))
    return Kube(
        user(),
        user_secret(**(numbers or {"current": 2, "previous": 1})),
        credentials(),
        CLUSTER,
        *pods,
        *more,
    )


async def who_uses(api: Kube, *words: str) -> int:
    return await run_line(api.client, "users", "who-uses", "billing", *words)


async def test_clients_are_listed_by_broker_and_credential(
    asked_by: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = asked_by(
        Admin(
            east_0=[use(1, 3, client("old", 2)), use(2, 4, client("new", 4))],
            east_1=[use(1, 0, idle_ms=61_000), use(2, 0, idle_ms=None)],
        )
    )
    assert await who_uses(kube()) == EXIT_OK
    printed = capsys.readouterr()
    assert [" ".join(line.split()) for line in printed.out.splitlines()] == [
        "BROKER CREDENTIAL CONNECTIONS NAME ADDRESS CLIENT LAST SHOWN",
        "east-0 1 (former) 2 old 10.0.0.9 go 1.40 now",
        "east-0 1 (former) 1 (not named) - - now",
        "east-0 2 (current) 4 new 10.0.0.9 go 1.40 now",
        "credential 1 (former): 3 connections",
        "credential 2 (current): 4 connections",
        "2 of 2 brokers answered",
    ]
    assert printed.err == ""
    assert admin.asked == [(name, "p", ("$G/billing",)) for name in ("east-0", "east-1")]
    assert await who_uses(kube(), "--all") == EXIT_OK
    rows = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "east-1 1 (former) 0 - - - 1m1s ago" in rows
    assert "east-1 2 (current) 0 - - - never" in rows


@pytest.mark.parametrize(
    ("answers", "more", "missing"),
    [
        ({"east_0": []}, (), "broker east-1 does not answer: no answer in 5 s"),
        ({"east_0": [], "east_1": []}, (pod("east-2"),), "broker east-2 does not answer: it has no address"),
        ({"east_0": [], "east_1": []}, (STATEFUL_SET,), "broker east-2 does not answer: it has no address"),
    ],
)
async def test_a_broker_that_does_not_answer_is_named_and_the_end_is_not_well(
    asked_by: Any,
    answers: dict[str, list[Json]],
    more: tuple[Json, ...],
    missing: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked_by(Admin(**answers))
    assert await who_uses(kube(*more)) == EXIT_FAILED
    printed = capsys.readouterr()
    assert missing in printed.err
    assert f"{len(answers)} of {len(answers) + 1} brokers answered" in printed.out


async def test_brokers_of_another_super_cluster_are_not_asked(asked_by: Any) -> None:
    other = {"supercluster.dev/super-cluster": "second", "supercluster.dev/cluster": "east"}
    admin = asked_by(Admin(east_0=[], east_1=[]))
    assert await who_uses(kube(pod("far-0", "10.0.0.7", other))) == EXIT_OK
    assert {name for name, _, _ in admin.asked} == {"east-0", "east-1"}


async def test_places_of_credentials_follow_the_secret_of_the_user(
    asked_by: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = use(1, 1, client("late", 1), inForce=False)
    asked_by(Admin(east_0=[gone, use(2, 0), use(3, 0)], east_1=[]))
    assert await who_uses(kube(current=2, next=3), "--all") == EXIT_OK
    printed = capsys.readouterr().out
    for words in ("1 (withdrawn)", "2 (current)", "3 (new)", "credential 3 (new): 0 connections"):
        assert words in printed


async def test_a_user_with_keys_is_asked_for_by_its_public_keys_too(asked_by: Any) -> None:
    keys = [
        {"nkey": "UONE", "account": "$G", "credential": "user-uid-billing.1"},
        {"nkey": "UTWO", "account": "$G", "credential": "user-uid-billing.2"},
        {"nkey": "UFAR", "account": "$G", "credential": "user-uid-other.1"},
        {"nkey": "UHAND", "account": "$G"},
    ]
    admin = asked_by(Admin(east_0=[], east_1=[]))
    api = kube()
    api.objects = [each for each in api.objects if each["metadata"]["name"] != "demo-credentials"]
    api.objects.append(credentials(*keys))
    await who_uses(api)
    assert admin.asked[0][2] == ("$G/billing", "$G/UONE", "$G/UTWO")


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ((user(),), "has no credential yet"),
        ((user(), secret("demo-user-billing")), "has no credential yet"),
        ((user(), user_secret(current=1)), "demo-credentials has no user operator yet"),
        ((user(), user_secret(current=1), credentials()), "SuperCluster demo has no broker"),
    ],
)
async def test_what_is_missing_is_named(objects: tuple[Json, ...], words: str) -> None:
    with pytest.raises(UsersError, match=words):
        await who_uses(Kube(*objects))


async def test_nothing_secret_is_printed(asked_by: Any, capsys: pytest.CaptureFixture[str]) -> None:
    asked_by(Admin(east_0=[use(1, 1)]))
    await who_uses(kube(), "--all")
    printed = capsys.readouterr()
    assert "hush" not in printed.out + printed.err


async def test_a_broker_is_asked_over_http_as_the_operator() -> None:
    """The call of docs/admin.md, with the account's `$` as it is written in an address."""
    asked = []

    async def handle(request: web.Request) -> web.Response:
        asked.append((request.path, request.query.getall("user"), request.headers["Authorization"]))
        return web.json_response({"shown": [use(2, 1, client("new", 1))]})

    async with serving(handle) as url, BrokerAdmin() as admin:
        target = BrokerTarget("ns", "demo", (), "operator", "p", (url,), ("east-0",))
        found = await connections.prepare(kube().client, "ns", await find(kube().client, "ns", "billing"))
        one = connections.Asked(
            found.user, found.numbers, found.names, {"east-0": target}, frozenset({"east-0"})
        )
        answers = await connections.ask(admin, one)
    assert asked == [("/admin/credentials", ["$G/billing"], "Basic b3BlcmF0b3I6cA==")]
    assert answers.reports["east-0"].uses["user-uid-billing.2"].connections == 1
    assert not answers.silent
