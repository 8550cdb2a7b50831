"""Whole rounds of accounts that a SuperCluster declares: what users.json has of them afterwards (OP-1, OP-2)."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import NS, SC, World
from tests.reconcilers.kinds.test_user_rounds import Users

from supercluster.broker.auth.users_file import parse_accounts
from supercluster.reconcilers.planners.status import timestamp
from supercluster.reconcilers.ports import KubeError

pytestmark = pytest.mark.covers("OP-1", "OP-2")

SECRET = "demo-credentials"
STORE = {"name": "STORE", "exports": [{"stream": "arrived.>"}, {"service": "stock.*"}]}
SHOP = {
    "name": "SHOP",
    "imports": [{"stream": {"account": "STORE", "subject": "arrived.>"}, "prefix": "store"}],
}
WRITTEN = {
    "STORE": {"exports": [{"stream": "arrived.>"}, {"service": "stock.*"}]},
    "SHOP": {"imports": [{"stream": {"account": "STORE", "subject": "arrived.>"}, "prefix": "store"}]},
}


@pytest.fixture
async def world() -> Users:
    world = Users()
    await world.converge()
    return world


def declare(world: World, *accounts: Mapping[str, Any]) -> None:
    def edit(body: dict[str, Any]) -> None:
        body["spec"]["accounts"] = list(accounts)
        body["metadata"]["generation"] = body["metadata"].get("generation", 1) + 1

    world.change("SuperCluster", "demo", edit)


def file(world: World) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(world.secret(SECRET)["users.json"])
    return found


def by_hand(world: World, **accounts: Any) -> None:
    def edit(body: dict[str, Any]) -> None:
        content = file(world)
        content["accounts"] = {**content.get("accounts", {}), **accounts}
        body["data"]["users.json"] = b64encode(json.dumps(content).encode()).decode()

    world.change("Secret", SECRET, edit)


def writes(world: World) -> int:
    return world.kube.calls.count(f"patch Secret {SECRET}")


async def test_declared_accounts_are_written_beside_the_users(world: Users) -> None:
    users = file(world)["users"]
    declare(world, STORE, SHOP)
    await world.settle(3)
    assert file(world) == {"users": users, "accounts": WRITTEN}
    parse_accounts(file(world))
    for each in ("Accepted", "Synced"):
        assert condition(world.status(SC), each)["status"] == "True", each
    before = writes(world)
    assert before == 1
    await world.settle(2)
    assert writes(world) == before


async def test_users_and_their_accounts_are_one_write(world: Users) -> None:
    declare(world, STORE, SHOP)
    world.user(account="SHOP")
    created = {"creationTimestamp": timestamp(world.clock.now())}
    world.change("User", "billing", lambda body: body["metadata"].update(created))
    await world.settle(1)  # The User makes its Secret.
    assert writes(world) == 0, "the User is new, and has no Secret yet"
    await world.settle()
    assert writes(world) == 1
    assert file(world)["accounts"] == WRITTEN
    assert [each["account"] for each in world.entries()] == ["SHOP"]


async def test_accounts_by_hand_stay_and_those_taken_out_of_the_spec_go(world: Users) -> None:
    by_hand(world, HAND={"exports": [{"stream": "h"}]})
    declare(world, STORE, SHOP)
    await world.settle(3)
    assert file(world)["accounts"] == {"HAND": {"exports": [{"stream": "h"}]}, **WRITTEN}
    declare(world, STORE)
    await world.settle(3)
    assert set(file(world)["accounts"]) == {"HAND", "STORE"}
    declare(world)
    world.restart()
    await world.settle(3)
    assert file(world)["accounts"] == {"HAND": {"exports": [{"stream": "h"}]}}


async def test_an_edit_of_a_declared_account_is_put_back(world: Users) -> None:
    declare(world, STORE, SHOP)
    await world.settle(3)
    by_hand(world, SHOP={"imports": []})
    await world.settle(3)
    assert file(world)["accounts"] == WRITTEN


async def test_another_entry_by_hand_is_refused_until_it_says_the_same(world: Users) -> None:
    by_hand(world, STORE={"exports": [{"stream": ">"}]})
    before = world.secret(SECRET)
    declare(world, STORE, SHOP)
    await world.settle(3)
    assert world.secret(SECRET) == before
    accepted = condition(world.status(SC), "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "NotAdopted")
    assert "spec.accounts[0] 'STORE' differs from accounts.STORE" in accepted["message"]
    assert condition(world.status(SC), "Synced")["reason"] == "NotAccepted"
    by_hand(world, STORE=WRITTEN["STORE"])
    await world.settle(3)
    assert file(world)["accounts"] == WRITTEN
    assert condition(world.status(SC), "Accepted")["status"] == "True"
    declare(world, STORE)
    await world.settle(3)
    assert file(world)["accounts"] == {"STORE": WRITTEN["STORE"]}


async def test_what_brokers_would_refuse_leaves_the_accounts_and_lets_users_pass(world: Users) -> None:
    declare(world, STORE, SHOP)
    await world.settle(3)
    wrong = {"name": "SHOP", "imports": [{"stream": {"account": "STORE", "subject": "gone"}}]}
    declare(world, STORE, wrong)
    world.user(account="SHOP")
    await world.settle()
    assert file(world)["accounts"] == WRITTEN
    accepted = condition(world.status(SC), "Accepted")
    assert accepted["reason"] == "ImportNotExported"
    assert "spec.accounts[1].imports[0].stream.subject 'gone'" in accepted["message"]
    assert "add it to exports of that account" in accepted["message"]
    assert len(world.entries()) == 1, "Users are not held up"


async def test_accounts_that_change_after_they_were_judged_are_judged_again(world: Users) -> None:
    declare(world, STORE, SHOP)
    hand = {"imports": [{"stream": {"account": "SHOP", "subject": "x"}}]}
    edits = [{"HAND": hand}]

    def edit_before_the_step(call: str) -> Exception | None:
        # The plan was made from the cache; the step reads the Secret anew.
        if call.startswith("get") and SECRET in call and edits:
            by_hand(world, **edits.pop())
        return None

    world.kube.fail = edit_before_the_step
    await world.round(SC)
    assert not edits, "the Secret was read"
    assert file(world)["accounts"] == {"HAND": hand}, "nothing was written over it"
    await world.settle(3)
    assert file(world)["accounts"] == {"HAND": hand}
    assert "accounts.HAND.imports[0]" in condition(world.status(SC), "Accepted")["message"]


async def test_a_write_that_fails_leaves_entries_and_their_mark_as_they_were(world: Users) -> None:
    declare(world, STORE, SHOP)
    world.fail_one_write(KubeError(500, "InternalError", "try again"))
    await world.settle(4)
    assert file(world)["accounts"] == WRITTEN
    annotations = world.kube.objects[("Secret", NS, SECRET)]["metadata"]["annotations"]
    assert annotations["supercluster.dev/accounts"] == "SHOP STORE"
