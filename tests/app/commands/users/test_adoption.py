"""`supercluster users adopt`: manifests that leave everything as it is, and nothing secret (CL-5)."""

from __future__ import annotations

from typing import Any

import bcrypt
import pytest
import yaml
from tests.app.commands.users.objects import SUPER_CLUSTER, Kube, credentials, secret, user
from tests.support.command_line import run_line

from supercluster.api import SuperCluster, User
from supercluster.api.nkeys import encode_public_key
from supercluster.app.commands.errors import EXIT_OK
from supercluster.app.commands.users.adoption import Adoption, adoption
from supercluster.app.commands.users.find import UsersError
from supercluster.broker.auth.users_file import parse_users
from supercluster.reconcilers.planners.user.entries import declared_entry
from supercluster.reconcilers.planners.user.refusals import refusal_of
from supercluster.reconcilers.planners.user.views import UserObserved
from supercluster.reconcilers.ports import Json

pytestmark = pytest.mark.covers("CL-5")

WHOLE = SuperCluster.model_validate(SUPER_CLUSTER)
PASSWORD = "hush-hush"
KEY = encode_public_key(bytes(32))
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()


def by_hand(name: str = "billing", **fields: Any) -> Json:
    return {"user": name, "password": PASSWORD, **fields}


def adopted(*entries: Json, users: tuple[Json, ...] = (), accounts: frozenset[str] = frozenset()) -> Adoption:
    return adoption(WHOLE, list(entries), accounts, [User.model_validate(each) for each in users])


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"account": "ORDERS", "role": "client"},
        {"permissions": {}},
        {"permissions": {"publish": {"allow": ["a.>", "b.*"], "deny": ["a.secret"]}}},
        {"permissions": {"publish": {"allow": []}, "subscribe": {"allow": ["q.* workers"], "deny": ["q.x"]}}},
        {"permissions": {"subscribe": None, "publish": {"allow": None, "deny": []}}},
        {"permissions": {"responses": {}}},
        {"permissions": {"publish": {"deny": ["z"]}, "responses": {"max": 5, "ttlMs": 1_500}}},
        {"limits": {"connectionsMax": 3, "subscriptionsMax": 0, "payloadBytesMax": 65_537}},
        {"permissions": {"subscribe": {"deny": ["x"]}}, "limits": {"connectionsMax": 3}},
    ],
)
def test_brokers_let_clients_do_what_they_did_before(fields: dict[str, Any]) -> None:
    """By the broker's own reading of the entry before and after, and the operator refuses nothing of it."""
    entry = by_hand(**fields)
    result = adopted(entry)
    (manifest,) = result.manifests
    declared = User.model_validate({**manifest, "metadata": {**manifest["metadata"], "uid": "u"}})
    after = {**declared_entry(declared, 1, "Password"), "password": PASSWORD}
    (old,), (new,) = parse_users({"users": [entry]}), parse_users({"users": [after]})
    assert (new.name, new.account, new.role) == (old.name, old.account, old.role)
    assert (new.permissions, new.limits) == (old.permissions, old.limits)
    assert declared.spec.adopt
    known = frozenset({(old.account, old.name)})
    assert refusal_of(declared, UserObserved(super_cluster=WHOLE, by_hand=known)) is None
    assert not result.remarks


def test_the_super_clusters_own_users_and_those_of_users_are_left_out() -> None:
    result = adopted(
        {"user": "operator", "password": "x", "role": "operator"},
        by_hand("app"),
        by_hand("made", credential="user-uid.1"),
    )
    assert result == Adoption()
    assert len(adopted(by_hand("app", account="ORDERS")).manifests) == 1, "another account's"


def test_names_of_resources_are_valid_and_unique() -> None:
    result = adopted(
        by_hand("Billing_Service"),
        by_hand("billing-service"),
        by_hand("billing-service", account="ORDERS"),
        by_hand("orders"),
        by_hand("__"),
        by_hand("a" * 100),
        by_hand("A" * 100),
        users=(user("orders", spec={"name": "another"}),),
    )
    names = [each["metadata"]["name"] for each in result.manifests]
    assert names == [
        "billing-service",
        "billing-service-2",
        "orders-billing-service",
        "orders-2",
        "user",
        "a" * 63,
        "a" * 61 + "-2",
    ]
    assert [each["spec"]["name"] for each in result.manifests][:2] == ["Billing_Service", "billing-service"]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"token": PASSWORD}, "users[0] is a token"),
        ({"nkey": KEY}, f"is the public key {KEY}; declare a User with spec.authentication type NKey"),
        (by_hand(role="operator"), "users[0] (billing of account $G) has the role operator"),
        (by_hand(role="system"), "has the role system"),
        (by_hand(account="NOWHERE"), "spec.account 'NOWHERE' is not declared; add it to spec.accounts"),
        (by_hand("two words"), "spec.name"),
        (by_hand(limits={"connectionsMax": 2**40}), "spec.limits.connectionsMax"),
        (by_hand(password=""), "has a password that is empty"),
        (by_hand(password="x" * 80), "bcrypt can hold 72"),
        (by_hand(permissions={"publish": {"allow": ["a..b"]}}), "'a..b' has an empty token"),
    ],
)
def test_what_no_user_can_take_over_is_named_with_the_reason(entry: Json, words: str) -> None:
    result = adopted(entry)
    assert not result.manifests
    (remark,) = result.remarks
    assert words in remark
    assert "stays in users.json" in remark
    assert PASSWORD not in remark


def test_an_account_that_users_json_declares_is_enough() -> None:
    assert adopted(by_hand(account="HAND"), accounts=frozenset({"HAND"})).manifests


def test_the_first_of_several_entries_of_a_user_is_taken_over() -> None:
    result = adopted(by_hand(limits={"connectionsMax": 1}), by_hand(limits={"connectionsMax": 2}))
    (manifest,) = result.manifests
    assert manifest["spec"]["limits"] == {"connectionsMax": 1}
    (remark,) = result.remarks
    assert remark.startswith("users[1] (billing of account $G) is another entry of the same user")


def test_a_hash_is_taken_over_and_told_of() -> None:
    result = adopted(by_hand(password=HASH))
    assert len(result.manifests) == 1
    (remark,) = result.remarks
    assert "has a hash for a password" in remark
    assert HASH not in remark


def test_a_user_that_is_declared_already_is_named() -> None:
    result = adopted(by_hand("a"), by_hand("b"), users=(user("a"), user("b", spec={"adopt": True})))
    assert not result.manifests
    assert "declared by User a without spec.adopt" in result.remarks[0]
    assert "taken over by User b already" in result.remarks[1]
    other = user("a", spec={"superCluster": "second"})
    assert len(adopted(by_hand("a"), users=(other,)).manifests) == 1, "of another super-cluster"


async def run(kube: Kube, *words: str) -> int:
    return await run_line(kube.client, "users", "adopt", *words)


async def test_manifests_are_printed_for_kubectl_and_remarks_beside_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    entries = credentials(by_hand("billing", account="ORDERS"), {"token": PASSWORD}, by_hand("b"))
    assert await run(Kube(SUPER_CLUSTER, entries)) == EXIT_OK
    printed = capsys.readouterr()
    first, second = yaml.safe_load_all(printed.out)
    assert first == {
        "apiVersion": "supercluster.dev/v1alpha1",
        "kind": "User",
        "metadata": {"name": "billing", "namespace": "ns"},
        "spec": {
            "superCluster": "demo",
            "name": "billing",
            "account": "ORDERS",
            "authentication": {"type": "Password"},
            "adopt": True,
        },
    }
    assert second["metadata"]["name"] == "b"
    assert "users[2] is a token" in printed.err
    assert PASSWORD not in printed.out + printed.err


async def test_nothing_to_take_over_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(Kube(SUPER_CLUSTER, credentials())) == EXIT_OK
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "has no user that a User could take over" in printed.err


SECOND = {**SUPER_CLUSTER, "metadata": {"name": "second", "namespace": "ns", "uid": "s", "generation": 1}}


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        ((), "namespace ns has no SuperCluster; say which"),
        ((SUPER_CLUSTER, SECOND), "namespace ns has demo, second; say which with --super-cluster"),
        ((SUPER_CLUSTER,), "there is no Secret demo-credentials"),
        (
            (SUPER_CLUSTER, secret("demo-credentials", **{"users.json": "{"})),
            "users.json of Secret .* can't be read",
        ),
    ],
)
async def test_what_is_missing_is_named(objects: tuple[Json, ...], words: str) -> None:
    with pytest.raises(UsersError, match=words):
        await run(Kube(*objects))
