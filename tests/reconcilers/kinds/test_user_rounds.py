"""Whole rounds of Users against a fake API server and brokers that say what they accept and who shows it (CL-5)."""

from __future__ import annotations

import copy
import itertools
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import bcrypt
import pytest
from tests.reconcilers.builders import condition
from tests.reconcilers.handlers.test_rounds import NS, SC, KilledError, World

from supercluster.api.nkeys import encode_public_key, problem_of
from supercluster.broker.auth.users_file import parse_users
from supercluster.reconcilers.observe.credential_reports import report_of
from supercluster.reconcilers.planners.user.views import label, owner_of
from supercluster.reconcilers.ports import Key

pytestmark = pytest.mark.covers("CL-5")

USER = Key("User", NS, "billing")
SECRET = "demo-user-billing"
BROKERS = ("east-0", "east-1", "east-2")
LONG_AGO = "2026-01-01T00:00:00Z"


class Users(World):
    """With one User, and brokers that read users.json whenever they are to."""

    def __init__(self) -> None:
        super().__init__()
        self.late: set[str] = set()
        """Brokers that have not read users.json since."""

    def user(self, resource: str = "billing", **spec: Any) -> None:
        self.declare("User", resource)
        spec["rotation"] = {"quietTime": "30s", **spec.get("rotation", {})}
        self.change("User", resource, lambda body: body.update({"spec": {"superCluster": "demo", **spec}}))

    def edit(self, **rotation: Any) -> None:
        self.change("User", "billing", lambda body: body["spec"].setdefault("rotation", {}).update(rotation))

    def entries(self) -> list[dict[str, Any]]:
        users = json.loads(self.secret("demo-credentials")["users.json"])["users"]
        return [each for each in users if each.get("credential")]

    def numbers(self, name: str = "billing") -> list[int]:
        uid = self.kube.objects[("User", NS, name)]["metadata"]["uid"]
        owners = [owner_of(each["credential"]) for each in self.entries()]
        return sorted(each[1] for each in owners if each is not None and each[0] == uid)

    def label(self, number: int) -> str:
        return label(self.kube.objects[("User", NS, "billing")]["metadata"]["uid"], number)

    def load(self) -> None:
        # What brokers refuse as a whole stops every User.
        parse_users(json.loads(self.secret("demo-credentials")["users.json"]))
        for broker in set(BROKERS) - self.late:
            self.brokers.users.load(broker, self.secret("demo-credentials"))

    async def settle(self, rounds: int = 9) -> None:
        """Rounds of everything, with time for brokers to be asked again."""
        for _ in range(rounds):
            for kind, _, name in list(self.kube.objects):
                if kind in ("SuperCluster", "User"):
                    await self.round(Key(kind, NS, name))
            self.load()
            await self.clock.advance(11_000)

    def accepts(self, broker: str, password: str) -> bool:
        return any(
            bcrypt.checkpw(password.encode(), entry["password"].encode())
            for entry in self.brokers.users.in_force.get(broker, {}).values()
            if entry.get("user") == "billing"
        )


@pytest.fixture
async def world() -> Users:
    world = Users()
    await world.converge()
    return world


def connected(world: Users, number: int, count: int, broker: str = "east-0") -> None:
    world.brokers.users.connections[(broker, world.label(number))] = count


def rotation(world: Users) -> Mapping[str, Any]:
    found: Mapping[str, Any] = world.status(USER).get("rotation", {})
    return found


def progress(world: Users) -> str:
    return str(condition(world.status(USER), "Progressing")["message"])


async def test_a_user_gets_a_secret_and_brokers_get_a_hash(world: Users) -> None:
    world.user(
        permissions={"publish": {"allow": ["orders.>"]}, "responses": {}}, limits={"payloadMax": "1Ki"}
    )
    await world.settle()
    secret = world.secret(SECRET)
    assert secret["user"] == "billing"
    assert secret["url"] == "nats://east.demo-ns.svc:4222"
    (entry,) = world.entries()
    assert bcrypt.checkpw(secret["password"].encode(), entry["password"].encode())
    assert entry["permissions"]["publish"] == {"allow": ["orders.>"]}
    assert entry["permissions"]["responses"] == {"max": 1, "ttlMs": 120_000}
    assert entry["limits"] == {"payloadBytesMax": 1024}
    assert entry["role"] == "client"
    assert secret["password"] not in world.secret("demo-credentials")["users.json"]
    for each in ("Ready", "Whole", "Synced", "Accepted"):
        assert condition(world.status(USER), each)["status"] == "True", each
    assert world.status(USER)["credential"] == 1


async def test_no_secret_is_said_anywhere(world: Users) -> None:
    world.user()
    await world.settle()
    world.edit(counter=1)
    await world.settle()
    secret = world.secret(SECRET)
    said = json.dumps([world.status(USER), world.status(SC), [str(each) for each in world.kube.events]])
    assert not [key for key, value in secret.items() if "assword" in key and value in said]
    assert not re.search(r"secret-\d", said)


async def test_a_credential_is_published_when_every_broker_accepts_it(world: Users) -> None:
    world.user()
    await world.settle()
    before = world.secret(SECRET)["password"]
    world.late = {"east-2"}
    connected(world, 1, 2)
    world.edit(counter=1)
    await world.settle()
    assert world.numbers() == [1, 2]
    assert world.secret(SECRET)["password"] == before
    assert rotation(world)["stage"] == "Introducing"
    assert rotation(world)["waitsFor"] == ["east-2"]
    assert "east-2" in progress(world)
    world.late = set()
    await world.settle()
    assert world.secret(SECRET)["password"] != before
    assert world.secret(SECRET)["previousPassword"] == before
    assert rotation(world)["stage"] == "ClientsRolling"


async def test_a_broker_without_an_answer_holds_a_credential_back(world: Users) -> None:
    world.user()
    await world.settle()
    before = world.secret(SECRET)["password"]
    world.brokers.users.silent = {"east-1"}
    world.edit(counter=1)
    await world.settle()
    assert world.secret(SECRET)["password"] == before
    assert rotation(world)["waitsFor"] == ["east-1"]
    assert "east-1 (no answer)" in progress(world)
    assert condition(world.status(USER), "Ready")["status"] == "True"
    assert condition(world.status(USER), "Whole")["status"] == "False"


async def test_the_former_credential_goes_when_nobody_shows_it(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 2)
    world.edit(counter=1)
    await world.settle()
    assert rotation(world)["connections"] == 2
    assert rotation(world)["clients"] == [
        {"address": "10.0.0.9", "name": "billing", "client": "go 1.2", "connections": 2}
    ]
    assert world.numbers() == [1, 2]
    connected(world, 1, 0)
    world.brokers.users.idle_ms[("east-0", world.label(1))] = 20_000
    await world.settle()
    assert world.numbers() == [1, 2], "shown within the quiet time"
    world.brokers.users.idle_ms[("east-0", world.label(1))] = 31_000
    await world.settle()
    assert world.numbers() == [2]
    assert "previousPassword" not in world.secret(SECRET)
    assert "rotation" not in world.status(USER)
    assert list(
        dict.fromkeys(each for each in world.told() if "Credential" in each or "Rotation" in each)
    ) == [
        "CredentialsGenerated",
        "RotationStarted",
        "CredentialPublished",
        "CredentialWithdrawn",
    ]


async def test_a_broker_that_has_just_started_is_not_quiet(world: Users) -> None:
    world.user()
    await world.settle()
    world.brokers.users.up_ms = 10_000
    world.edit(counter=1)
    await world.settle()
    assert world.numbers() == [1, 2]
    world.brokers.users.up_ms = 30_000
    await world.settle()
    assert world.numbers() == [2]


async def test_what_brokers_said_a_moment_ago_takes_nothing_away(world: Users) -> None:
    """A client came back between the look and the step."""
    world.user()
    await world.settle()
    world.edit(counter=1)
    connected(world, 1, 1)
    await world.settle()
    connected(world, 1, 0)
    answers = itertools.count()

    def came_back(call: str) -> Exception | None:
        if call == "credentials" and next(answers) == len(BROKERS):
            connected(world, 1, 1)
        return None

    world.brokers.fail = came_back
    await world.round(USER)
    world.load()
    assert world.secret(SECRET).get("previousPassword")
    await world.round(SC)
    assert world.numbers() == [1, 2]


async def test_a_deadline_says_first_whom_it_cuts_off(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 3)
    world.edit(counter=1, deadlineAfter="10m")
    await world.settle()
    warning = condition(world.status(USER), "Warning")
    assert (warning["status"], warning["reason"]) == ("True", "DeadlineNear")
    assert "3 of billing at 10.0.0.9 (go 1.2)" in warning["message"]
    assert world.numbers() == [1, 2]
    await world.clock.advance(600_000)
    await world.settle()
    assert world.numbers() == [2]
    cut = next(each for each in world.kube.events if str(each.reason) == "ClientsCutOff")
    assert "3 of billing at 10.0.0.9" in cut.message


async def test_a_deadline_that_is_over_at_once_is_told_before_it_cuts_anybody_off(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 1)
    world.edit(counter=1)
    await world.settle()
    now = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    world.edit(deadline=now)
    await world.round(USER)
    assert condition(world.status(USER), "Warning")["reason"] == "DeadlineNear"
    assert "previousPassword" in world.secret(SECRET)
    await world.settle(2)
    assert world.numbers() == [2]


async def test_a_deadline_in_the_past_begins_nothing(world: Users) -> None:
    world.user()
    await world.settle()
    world.edit(counter=1, deadline=LONG_AGO)
    await world.settle()
    assert world.numbers() == [1]
    accepted = condition(world.status(USER), "Accepted")
    assert accepted["reason"] == "InvalidDeadline"
    assert LONG_AGO in accepted["message"]
    assert condition(world.status(USER), "Ready")["status"] == "True"


async def test_a_rotation_is_taken_back_before_clients_roll(world: Users) -> None:
    world.user()
    await world.settle()
    before = world.secret(SECRET)["password"]
    world.late = {"east-0"}
    world.edit(counter=1)
    await world.settle()
    world.edit(cancel=True)
    world.late = set()
    await world.settle()
    assert world.numbers() == [1]
    assert world.secret(SECRET)["password"] == before
    assert "nextPassword" not in world.secret(SECRET)
    world.edit(cancel=False)
    await world.settle()
    assert world.numbers() == [1], "the same counter asks for nothing anew"
    world.edit(counter=2)
    await world.settle()
    assert world.numbers() == [3], "no number is used twice"


async def test_a_rotation_is_taken_back_while_clients_roll(world: Users) -> None:
    world.user()
    await world.settle()
    before = world.secret(SECRET)["password"]
    connected(world, 1, 2)
    world.edit(counter=1)
    await world.settle()
    connected(world, 1, 1)
    connected(world, 2, 1)
    world.edit(cancel=True)
    await world.settle()
    assert world.secret(SECRET)["password"] == before
    assert world.numbers() == [1, 2], "a client shows the one that was new"
    assert rotation(world)["former"] == 2
    connected(world, 2, 0)
    await world.settle()
    assert world.numbers() == [1]


async def test_a_suspended_rotation_goes_no_further(world: Users) -> None:
    world.user()
    await world.settle()
    world.edit(counter=1, suspend=True)
    await world.settle()
    assert world.numbers() == [1]
    world.edit(suspend=False)
    world.late = {"east-0"}
    await world.settle()
    world.late = set()
    before = world.secret(SECRET)["password"]
    world.edit(suspend=True)
    await world.settle()
    assert world.secret(SECRET)["password"] == before
    world.edit(suspend=False)
    await world.settle()
    assert world.numbers() == [2]


async def test_an_old_credential_and_an_annotation_begin_rotations(world: Users) -> None:
    world.user(rotation={"after": "90d"})
    await world.settle()
    await world.clock.advance(7689600_000)
    await world.settle()
    assert world.numbers() == [1]
    await world.clock.advance(86400_000)
    await world.settle()
    assert world.numbers() == [2]
    note = {"supercluster.dev/rotate": "now"}
    world.change("User", "billing", lambda body: body["metadata"].setdefault("annotations", {}).update(note))
    await world.settle()
    assert world.numbers() == [3]
    await world.settle()
    assert world.numbers() == [3]


async def test_an_operator_that_is_killed_at_any_call_goes_on() -> None:
    """What clients read is accepted by every broker at any moment, and no number and no password is lost."""
    for call in range(60):
        world = Users()
        await world.converge()
        world.user()
        await world.settle(3)
        connected(world, 1, 1)
        world.edit(counter=1)
        for step in range(8):
            if step == 4:
                connected(world, 1, 0)
            if step == call % 8:
                world.die_at_call(call // 8)
            with suppress(KilledError):
                await world.settle(1)
            assert all(world.accepts(each, world.secret(SECRET)["password"]) for each in BROKERS), (
                call,
                step,
            )
            if step == call % 8:
                world.kube.fail = world.brokers.fail = lambda _: None
                world.restart()
                world.load()
        await world.settle(4)
        assert world.numbers() == [2], call
        assert "previousPassword" not in world.secret(SECRET), call
        assert all(world.accepts(each, world.secret(SECRET)["password"]) for each in BROKERS)


async def test_500_users_are_one_write(world: Users) -> None:
    created = {"creationTimestamp": world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
    for number in range(500):
        world.user(f"user-{number}")
        world.change("User", f"user-{number}", lambda body: body["metadata"].update(created))
    world.kube.calls.clear()
    for number in range(500):
        await world.round(Key("User", NS, f"user-{number}"))
        if number % 50 == 0:
            await world.round(SC)
    assert world.entries() == []
    await world.round(SC)
    assert len(world.entries()) == 500
    written = [each for each in world.kube.calls if "demo-credentials" in each and not each.startswith("get")]
    assert len(written) == 1
    assert world.brokers.users.asked < 500, "answers of brokers are shared"


async def test_users_that_have_waited_long_enough_do_not_wait_for_others(world: Users) -> None:
    world.user()
    await world.settle(2)
    assert world.numbers() == [1]
    now = world.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    world.user("late")
    world.change("User", "late", lambda body: body["metadata"].update({"creationTimestamp": now}))
    world.user("other")
    await world.round(Key("User", NS, "other"))
    await world.round(Key("User", NS, "other"))
    await world.round(SC)
    assert world.numbers("other") == [1]


async def test_users_beyond_what_a_secret_holds_wait_and_the_others_go_on(world: Users) -> None:
    world.user()
    await world.settle()
    long = {"publish": {"allow": [f"{number:03}.{'x' * 250}" for number in range(250)]}}
    for number in range(10):
        world.user(f"long-{number}", permissions=long)
    await world.settle()
    accepted = condition(world.status(SC), "Accepted")
    assert accepted["reason"] == "OutOfRange"
    assert "a Secret holds 1 MiB" in accepted["message"]
    assert "demo-user-long-" in accepted["message"]
    assert len(world.secret("demo-credentials")["users.json"]) < 500_000
    assert 3 < len(world.entries()) < 11
    world.edit(counter=1)
    await world.settle()
    assert world.numbers() == [2], "the others go on"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (None, "Secret mine of namespace demo-ns is not there"),
        ({"other": "x"}, "has no key 'password'"),
        ({"password": ""}, "password is empty"),
        ({"password": "x" * 73}, "has 73 bytes; bcrypt can hold 72"),
        ({"password": "hush\n"}, "ends with a line break"),
    ],
)
async def test_a_password_that_cannot_be_one_is_refused(
    world: Users, data: dict[str, str] | None, words: str
) -> None:
    if data is not None:
        give(world, data)
    world.user(authentication={"passwordFrom": {"name": "mine"}})
    await world.settle()
    accepted = condition(world.status(USER), "Accepted")
    assert (accepted["status"], accepted["reason"]) == ("False", "SecretInvalid")
    assert words in accepted["message"]
    assert "spec.authentication.passwordFrom" in accepted["message"]
    assert "hush" not in accepted["message"]
    assert ("Secret", NS, SECRET) not in world.kube.objects
    give(world, {"password": "right"})
    await world.settle()
    assert world.secret(SECRET)["password"] == "right"
    assert world.numbers() == [1]


def give(world: Users, data: dict[str, str]) -> None:
    from base64 import b64encode

    encoded = {key: b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"name": "mine", "namespace": NS}
    world.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})


async def test_a_given_password_that_changes_rolls(world: Users) -> None:
    give(world, {"password": "first"})
    world.user(authentication={"passwordFrom": {"name": "mine"}})
    await world.settle()
    connected(world, 1, 1)
    give(world, {"password": "second"})
    await world.settle()
    assert world.secret(SECRET)["password"] == "second"
    assert world.secret(SECRET)["previousPassword"] == "first"
    give(world, {"password": ""})
    connected(world, 1, 0)
    await world.settle()
    assert world.secret(SECRET)["password"] == "second", "what is wrong changes nothing"
    assert condition(world.status(USER), "Ready")["status"] == "True"
    (entry,) = world.entries()
    assert entry["password"].startswith("$2b$10$"), "a person's password may be weak"


async def test_a_given_password_is_not_rolled_into_itself(world: Users) -> None:
    """Brokers could not tell whether a client shows the former one."""
    give(world, {"password": "first"})
    world.user(authentication={"passwordFrom": {"name": "mine"}})
    await world.settle()
    world.edit(counter=1)
    await world.settle()
    assert world.numbers() == [1]
    warning = condition(world.status(USER), "Warning")
    assert warning["reason"] == "RotationDue"
    assert "change what spec.authentication.passwordFrom names" in warning["message"]
    give(world, {"password": "second"})
    await world.settle()
    assert world.numbers() == [2]
    assert condition(world.status(USER), "Warning")["status"] == "False"


async def test_an_nkey_has_its_seed_in_the_secret_and_its_public_key_at_brokers(world: Users) -> None:
    world.user(authentication={"type": "NKey"})
    await world.settle()
    secret = world.secret(SECRET)
    (entry,) = world.entries()
    assert entry["nkey"] == secret["nkey"]
    assert problem_of(secret["nkey"]) == ""
    assert secret["seed"].startswith("SU")
    assert "password" not in entry
    assert "user" not in entry
    world.edit(counter=1)
    await world.settle()
    assert world.numbers() == [2]
    assert world.secret(SECRET)["nkey"] == world.entries()[0]["nkey"] != secret["nkey"]


async def test_another_kind_of_credential_is_a_rotation(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 1)
    world.change("User", "billing", lambda body: body["spec"].update({"authentication": {"type": "NKey"}}))
    await world.settle()
    assert {"seed", "nkey", "previousPassword"} <= set(world.secret(SECRET))
    assert "password" not in world.secret(SECRET)
    assert [("nkey" in each, "password" in each) for each in world.entries()] == [
        (False, True),
        (True, False),
    ]


async def test_a_public_key_belongs_to_one_user(world: Users) -> None:
    authentication = {"type": "NKey", "publicKey": encode_public_key(bytes(32))}
    world.user(authentication=authentication)
    world.change("User", "billing", lambda body: body["metadata"].update({"creationTimestamp": LONG_AGO}))
    world.user("second", authentication=authentication)
    later = {"creationTimestamp": "2026-01-01T00:00:01Z"}
    world.change("User", "second", lambda body: body["metadata"].update(later))
    await world.settle()
    assert len(world.entries()) == 1
    assert condition(world.status(USER), "Ready")["status"] == "True"
    accepted = condition(world.status(Key("User", NS, "second")), "Accepted")
    assert accepted["reason"] == "InvalidKey"
    assert "belongs to User billing" in accepted["message"]


async def test_a_public_key_that_is_none_is_refused(world: Users) -> None:
    key = encode_public_key(bytes(32))
    wrong = key[:-1] + ("A" if key[-1] != "A" else "B")
    world.user(authentication={"type": "NKey", "publicKey": wrong})
    await world.settle()
    accepted = condition(world.status(USER), "Accepted")
    assert accepted["reason"] == "InvalidKey"
    assert "spec.authentication.publicKey has a wrong check sum" in accepted["message"]
    authentication = {"type": "NKey", "publicKey": key}
    world.change("User", "billing", lambda body: body["spec"].update({"authentication": authentication}))
    await world.settle()
    assert world.entries()[0]["nkey"] == key
    assert "seed" not in world.secret(SECRET)


@pytest.mark.parametrize(
    ("spec", "reason", "words"),
    [
        ({"account": "A"}, "AccountNotDeclared", "spec.account 'A'"),
        (
            {"permissions": {"publish": {"allow": ["a..b"]}}},
            "InvalidSubject",
            "spec.permissions.publish.allow[0] 'a..b' has an empty token",
        ),
        (
            {"permissions": {"subscribe": {"deny": ["a", "b.>.c"]}}},
            "InvalidSubject",
            "spec.permissions.subscribe.deny[1] 'b.>.c' has > before its end",
        ),
        ({"permissions": {"publish": {"deny": ["a b"]}}}, "InvalidSubject", "has a space"),
        ({"name": "operator"}, "NameConflict", "the super-cluster's own"),
        ({"rotation": {"after": "1s"}}, "OutOfRange", "spec.rotation.after"),
    ],
)
async def test_what_cannot_be_is_refused_with_field_value_and_remedy(
    world: Users, spec: dict[str, Any], reason: str, words: str
) -> None:
    world.user(**spec)
    await world.settle()
    accepted = condition(world.status(USER), "Accepted")
    assert accepted["reason"] == reason
    assert words in accepted["message"]
    assert world.entries() == []


async def test_wrong_permissions_leave_those_in_force(world: Users) -> None:
    world.user(permissions={"publish": {"allow": ["a"]}})
    await world.settle()
    wrong = {"publish": {"allow": ["a..b"]}}
    world.change("User", "billing", lambda body: body["spec"].update({"permissions": wrong}))
    await world.settle()
    assert world.entries()[0]["permissions"]["publish"] == {"allow": ["a"]}
    assert condition(world.status(USER), "Synced")["reason"] == "NotAccepted"


async def test_of_two_users_of_one_name_the_older_is_served(world: Users) -> None:
    world.user()
    world.change("User", "billing", lambda body: body["metadata"].update({"creationTimestamp": LONG_AGO}))
    world.user("second", name="billing")
    later = {"creationTimestamp": "2026-01-01T00:00:01Z"}
    world.change("User", "second", lambda body: body["metadata"].update(later))
    await world.settle()
    refused = condition(world.status(Key("User", NS, "second")), "Accepted")
    assert refused["reason"] == "NameConflict"
    assert "belongs to User billing" in refused["message"]
    assert world.numbers() == [1]
    assert len(world.entries()) == 1


def write_by_hand(world: Users, **user: Any) -> None:
    from base64 import b64encode

    def edit(body: dict[str, Any]) -> None:
        content = json.loads(world.secret("demo-credentials")["users.json"])
        content["users"].append(user)
        body["data"]["users.json"] = b64encode(json.dumps(content).encode()).decode()

    world.change("Secret", "demo-credentials", edit)


async def test_users_by_hand_stay_until_they_are_taken_over(world: Users) -> None:
    await world.settle()
    assert "Warning" not in {each["type"] for each in world.status(SC)["conditions"]}
    write_by_hand(world, user="old", password="plain", account="$G")
    write_by_hand(world, user="billing", password="was-plain", account="$G", permissions={"publish": {}})
    world.user()
    world.user("new")
    await world.settle()
    assert condition(world.status(USER), "Accepted")["reason"] == "NotAdopted"
    users = json.loads(world.secret("demo-credentials")["users.json"])["users"]
    assert {"user": "old", "password": "plain", "account": "$G"} in users
    warning = condition(world.status(SC), "Warning")
    assert warning["reason"] == "UsersByHand"
    assert "billing of account $G, old of account $G" in warning["message"]
    assert "supercluster users adopt" in warning["message"]
    world.change("User", "billing", lambda body: body["spec"].update({"adopt": True}))
    await world.settle()
    assert world.secret(SECRET)["password"] == "was-plain"
    users = json.loads(world.secret("demo-credentials")["users.json"])["users"]
    (entry,) = [each for each in users if each.get("user") == "billing"]
    assert entry["credential"] == world.label(1)
    assert bcrypt.checkpw(b"was-plain", entry["password"].encode())
    assert "permissions" not in entry, "what the User declares is in force"
    assert condition(world.status(USER), "Ready")["status"] == "True"


async def test_the_application_user_is_taken_over_with_its_secret(world: Users) -> None:
    """Clients that read the Secret of the super-cluster's clients go on reading it, and can be rolled."""
    await world.settle()
    before = world.secret("demo-client")
    world.user("application", name="app", adopt=True)
    await world.settle()
    assert world.secret("demo-client") == before
    key, rotated = Key("User", NS, "application"), {"counter": 1, "quietTime": "30s"}
    assert condition(world.status(key), "Ready")["status"] == "True"
    assert world.status(key)["secret"] == "demo-client"
    (entry,) = world.entries()
    assert bcrypt.checkpw(before["password"].encode(), entry["password"].encode())
    world.change("User", "application", lambda body: body["spec"].update({"rotation": rotated}))
    await world.settle()
    after = world.secret("demo-client")
    assert after["password"] != before["password"]
    assert world.numbers("application") == [2]
    calls = len(world.kube.calls)
    await world.settle(3)
    assert not [
        each for each in world.kube.calls[calls:] if "demo-client" in each and not each.startswith("get")
    ]
    world.delete(key)
    await world.settle()
    assert key.name not in {name for kind, _, name in world.kube.objects if kind == "User"}
    await world.converge()
    (entry,) = [
        each
        for each in json.loads(world.secret("demo-credentials")["users.json"])["users"]
        if each.get("user") == "app"
    ]
    assert entry["password"] == world.secret("demo-client")["password"], "the super-cluster has made it anew"


async def test_a_secret_without_its_annotation_takes_no_entry_away(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 1)
    world.change("Secret", SECRET, lambda body: body["metadata"].pop("annotations"))
    await world.settle()
    assert world.numbers() == [1, 2]
    connected(world, 1, 0)
    await world.settle()
    assert world.numbers() == [2]


async def test_a_secret_that_cannot_be_read_takes_no_entry_away(world: Users) -> None:
    world.user()
    await world.settle()
    broken = {"supercluster.dev/credentials": "{"}
    world.change("Secret", SECRET, lambda body: body["metadata"]["annotations"].update(broken))
    await world.settle()
    assert world.numbers() == [1]
    ready = condition(world.status(USER), "Ready")
    assert ready["reason"] == "CredentialsUnreadable"
    assert "delete the Secret" in ready["message"]


async def test_a_deleted_user_keeps_its_clients_until_none_is_left(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 1)
    world.delete(USER)
    await world.settle()
    ready = condition(world.status(USER), "Ready")
    assert ready["reason"] == "UserInUse"
    assert "billing at 10.0.0.9" in ready["message"]
    assert len(world.entries()) == 1
    connected(world, 1, 0)
    await world.settle()
    assert world.entries() == []
    assert ("User", NS, "billing") not in world.kube.objects


async def test_a_deleted_user_goes_at_once_where_it_is_to(world: Users) -> None:
    world.user(deletionPolicy="Immediately")
    await world.settle()
    connected(world, 1, 1)
    world.delete(USER)
    await world.settle(2)
    assert world.entries() == []
    connected(world, 1, 0)
    await world.settle(2)
    assert ("User", NS, "billing") not in world.kube.objects


async def test_a_secret_that_was_deleted_is_a_rotation(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 1)
    del world.kube.objects[("Secret", NS, SECRET)]
    await world.settle()
    assert world.numbers() == [1, 2]
    connected(world, 1, 0)
    await world.settle()
    assert world.numbers() == [2]


async def test_a_password_that_a_person_writes_into_the_secret_is_accepted_soon(world: Users) -> None:
    from base64 import b64encode

    world.user()
    await world.settle()
    edited = {"password": b64encode(b"by-hand").decode()}
    world.change("Secret", SECRET, lambda body: body["data"].update(edited))
    connected(world, 1, 1)
    await world.settle()
    assert world.secret(SECRET)["password"] == "by-hand"
    assert all(world.accepts(each, "by-hand") for each in BROKERS)
    assert world.numbers() == [1, 2]
    connected(world, 1, 0)
    await world.settle()
    assert world.numbers() == [2]


async def test_entries_of_a_user_that_is_gone_go_when_nobody_shows_them(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 1)
    label = world.label(1)
    del world.kube.objects[("User", NS, "billing")]
    world.restart()
    for _ in range(3):
        await world.round(SC)
        await world.clock.advance(11_000)
    assert len(world.entries()) == 1
    world.brokers.users.connections[("east-0", label)] = 0
    for _ in range(3):
        await world.round(SC)
        await world.clock.advance(11_000)
    assert world.entries() == []


def write_secret(world: Users, **fields: str | None) -> None:
    """Somebody changes values of the User's Secret."""
    from base64 import b64encode

    def edit(body: dict[str, Any]) -> None:
        for key, value in fields.items():
            if value is None:
                body["data"].pop(key, None)
            else:
                body["data"][key] = b64encode(value.encode()).decode()

    world.change("Secret", SECRET, edit)


@pytest.mark.parametrize("late", [set[str](), {"east-2"}])
async def test_a_secret_that_is_deleted_during_a_rotation_cuts_nobody_off(
    world: Users, late: set[str]
) -> None:
    """While clients roll, and while brokers take the next credential over."""
    world.user()
    await world.settle()
    connected(world, 1, 5)
    world.late = late
    world.edit(counter=1)
    await world.settle()
    del world.kube.objects[("Secret", NS, SECRET)]
    world.late = set()
    await world.settle()
    assert world.numbers() == [1, 2, 3]
    assert all(world.accepts(each, world.secret(SECRET)["password"]) for each in BROKERS)
    del world.kube.objects[("Secret", NS, SECRET)]
    await world.settle()
    assert 1 in world.numbers(), "five connections show it"
    assert rotation(world)["connections"] == 5
    connected(world, 1, 0)
    await world.settle()
    assert len(world.numbers()) == 1


async def test_a_secret_of_a_backup_cuts_nobody_off(world: Users) -> None:
    world.user()
    await world.settle()
    saved = copy.deepcopy(world.kube.objects[("Secret", NS, SECRET)])
    world.edit(counter=1)
    await world.settle()
    assert world.numbers() == [2]
    connected(world, 2, 5)
    world.change("Secret", SECRET, lambda body: body.update({key: saved[key] for key in ("data",)}))
    annotations = saved["metadata"]["annotations"]
    world.change("Secret", SECRET, lambda body: body["metadata"].update({"annotations": annotations}))
    await world.settle()
    assert 2 in world.numbers(), "five connections show it"
    assert all(world.accepts(each, world.secret(SECRET)["password"]) for each in BROKERS)
    connected(world, 2, 0)
    await world.settle()
    assert 2 not in world.numbers()


async def test_the_quiet_time_begins_when_clients_can_read_the_new_credential(world: Users) -> None:
    """A pod that started just before has read the former one, and has not come yet."""
    world.user(rotation={"quietTime": "1h"})
    await world.settle()
    world.brokers.users.up_ms = 36_000_000
    world.edit(counter=1)
    await world.settle()
    assert world.numbers() == [1, 2]
    await world.clock.advance(3_600_000)
    await world.settle()
    assert world.numbers() == [2]


@pytest.mark.parametrize("bad", ["x" * 73, "a\0b", "line\n", ""])
async def test_a_password_that_a_person_has_broken_is_told_and_stops_no_other_user(
    world: Users, bad: str
) -> None:
    world.user()
    await world.settle()
    write_secret(world, password=bad)
    await world.settle()
    ready = condition(world.status(USER), "Ready")
    assert ready["reason"] == "CredentialsUnreadable"
    assert "delete the Secret" in ready["message"]
    world.user("third")
    await world.settle()
    assert world.numbers("third") == [1]
    assert world.numbers() == [1]
    del world.kube.objects[("Secret", NS, SECRET)]
    await world.settle()
    assert condition(world.status(USER), "Ready")["status"] == "True"


async def test_a_password_that_was_broken_before_brokers_had_it_is_written_by_nobody(world: Users) -> None:
    world.user()
    await world.round(USER)
    write_secret(world, password="x" * 73)
    calls = len(world.kube.calls)
    await world.settle(3)
    written = [
        each for each in world.kube.calls[calls:] if "demo-credentials" in each and not each.startswith("get")
    ]
    assert written == []
    assert condition(world.status(USER), "Ready")["reason"] == "CredentialsUnreadable"
    world.user("third")
    await world.settle(3)
    assert world.numbers("third") == [1]


async def test_a_password_that_is_gone_and_a_key_that_is_none_are_told(world: Users) -> None:
    world.user()
    await world.settle()
    write_secret(world, password=None)
    await world.settle()
    assert "there is no password in it any more" in condition(world.status(USER), "Ready")["message"]
    authentication = {"type": "NKey"}
    world.change("User", "billing", lambda body: body["spec"].update({"authentication": authentication}))
    await world.settle()
    write_secret(world, seed="SUAEDITED")
    await world.settle()
    assert "seed is not the other half of nkey" in condition(world.status(USER), "Ready")["message"]
    write_secret(world, nkey="garbage")
    await world.settle()
    assert "nkey is no user's public key" in condition(world.status(USER), "Ready")["message"]
    assert "garbage" not in json.dumps(world.entries())


@pytest.mark.parametrize("late", [set[str](), {"east-2"}])
async def test_a_password_that_is_edited_during_a_rotation_is_accepted_soon(
    world: Users, late: set[str]
) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 1)
    world.late = late
    world.edit(counter=1)
    await world.settle()
    write_secret(world, password="by-hand")
    world.late = set()
    await world.settle(4)
    assert all(world.accepts(each, "by-hand") for each in BROKERS)
    assert 1 in world.numbers()
    connected(world, 1, 0)
    await world.settle(14)
    assert len(world.numbers()) == 1
    assert all(world.accepts(each, world.secret(SECRET)["password"]) for each in BROKERS)


async def test_a_next_credential_that_is_gone_is_made_anew(world: Users) -> None:
    world.user()
    await world.settle()
    world.late = {"east-0"}
    world.edit(counter=1)
    await world.settle()
    write_secret(world, nextPassword=None)
    world.late = set()
    await world.settle()
    assert world.numbers() == [3]
    assert all(world.accepts(each, world.secret(SECRET)["password"]) for each in BROKERS)


async def test_a_cluster_that_cannot_be_read_withdraws_nothing(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 5)
    world.edit(counter=1)
    await world.settle()
    whole = copy.deepcopy(world.kube.objects[("Cluster", NS, "east")]["spec"])
    world.change("Cluster", "east", lambda body: body["spec"].update({"replicas": "many"}))
    await world.settle()
    assert world.numbers() == [1, 2]
    assert world.secret(SECRET)["url"] == "nats://east.demo-ns.svc:4222"
    assert rotation(world)["waitsFor"][0].startswith("Cluster ")
    world.delete(USER)
    await world.settle()
    assert world.numbers() == [1, 2]
    world.change("Cluster", "east", lambda body: body.update({"spec": whole}))
    connected(world, 1, 0)
    await world.settle()
    assert world.entries() == []


async def test_a_super_cluster_that_is_not_there_withdraws_nothing(world: Users) -> None:
    world.user()
    await world.settle()
    connected(world, 1, 5)
    world.edit(counter=1)
    await world.settle()
    del world.kube.objects[("SuperCluster", NS, "demo")]
    for _ in range(4):
        await world.round(USER)
        await world.clock.advance(31_000)
    assert "previousPassword" in world.secret(SECRET)


@pytest.mark.parametrize("policy", ["WhenUnused", "Immediately"])
async def test_a_deleted_user_whose_secret_went_first_is_withdrawn_as_it_says(
    world: Users, policy: str
) -> None:
    """Foreground deletion takes the Secret first."""
    world.user(deletionPolicy=policy)
    await world.settle()
    connected(world, 1, 1)
    world.delete(USER)
    del world.kube.objects[("Secret", NS, SECRET)]
    await world.settle(3)
    if policy == "WhenUnused":
        assert world.numbers() == [1]
        connected(world, 1, 0)
        await world.settle()
    assert world.entries() == []
    assert ("User", NS, "billing") not in world.kube.objects


async def test_an_entry_by_hand_with_a_label_stays(world: Users) -> None:
    write_by_hand(world, user="legacy", password="pw", credential="legacy.2")
    world.user()
    await world.settle()
    assert "legacy" in {each["user"] for each in world.entries()}
    assert "legacy of account $G" in condition(world.status(SC), "Warning")["message"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"rotation": {"deadlineAfter": "0d"}},
            "spec.rotation.deadlineAfter is 0d; it has to be from 1s to 3650d",
        ),
        ({"rotation": {"deadlineAfter": "9999999d"}}, "spec.rotation.deadlineAfter"),
        ({"rotation": {"after": "9999999d"}}, "spec.rotation.after"),
        ({"limits": {"payloadMax": "10000000T"}}, "spec.limits.payloadMax is 10000000T"),
    ],
)
async def test_numbers_beyond_what_brokers_count_are_refused(
    world: Users, spec: dict[str, Any], words: str
) -> None:
    world.user(**spec)
    await world.settle()
    accepted = condition(world.status(USER), "Accepted")
    assert accepted["reason"] == "OutOfRange"
    assert words in accepted["message"]
    assert world.entries() == []
    world.change("User", "billing", lambda body: body["spec"].update({"rotation": {}, "limits": {}}))
    await world.settle()
    world.change("User", "billing", lambda body: body["spec"].update(spec))
    world.edit(counter=7)
    await world.settle()
    assert world.numbers() == [1], "what is refused begins nothing"


async def test_a_deadline_says_which_brokers_do_not_answer(world: Users) -> None:
    world.user(rotation={"deadlineAfter": "1m"})
    await world.settle()
    connected(world, 1, 3)
    world.edit(counter=1)
    await world.settle(3)
    world.brokers.users.silent = {"east-0"}
    await world.settle(1)
    warning = condition(world.status(USER), "Warning")
    assert "any clients connected to east-0 (no answer)" in warning["message"]


async def test_a_credential_is_published_by_the_brokers_words_of_the_moment(world: Users) -> None:
    world.user()
    await world.settle()
    before = world.secret(SECRET)["password"]
    world.edit(counter=1)
    await world.round(USER)
    await world.round(SC)
    world.load()
    await world.clock.advance(11_000)
    answers = itertools.count()

    def restarts(call: str) -> Exception | None:
        if call == "credentials" and next(answers) == len(BROKERS):
            world.brokers.users.in_force["east-0"] = {}
        return None

    world.brokers.fail = restarts
    await world.round(USER)
    assert world.secret(SECRET)["password"] == before


def test_a_credential_that_an_answer_leaves_out_is_not_quiet() -> None:
    told = {"upMs": 3_600_000, "shown": [], "shownMore": 1}
    assert not report_of(told).is_quiet("user-u.1", timedelta(seconds=30))
    assert report_of({**told, "shownMore": 0}).is_quiet("user-u.1", timedelta(seconds=30))


async def test_the_application_user_waits_for_the_super_cluster_to_make_it() -> None:
    """GitOps applies both at once."""
    world = Users()
    world.user("application", name="app", adopt=True)
    await world.converge()
    await world.settle(3)
    status = world.status(Key("User", NS, "application"))
    assert status["credential"] == 1
    assert condition(status, "Ready")["status"] == "True"
    assert world.numbers("application") == [1]


async def test_an_entry_keeps_its_place(world: Users) -> None:
    """Of several that fit what a client shows, brokers take the first."""
    world.user("first")
    world.user("second")
    await world.settle()
    before = [each["user"] for each in world.entries()]
    limits = {"connectionsMax": 3}
    for name in ("first", "second"):
        world.change("User", name, lambda body: body["spec"].update({"limits": limits}))
        await world.settle(3)
        assert [each["user"] for each in world.entries()] == before


@pytest.mark.parametrize("how", ["deleted", "edited"])
async def test_an_nkey_that_the_secret_has_lost_stays_an_entry_that_brokers_take(
    world: Users, how: str
) -> None:
    world.user(authentication={"type": "NKey"})
    await world.settle()
    before = world.entries()[0]["nkey"]
    connected(world, 1, 1)
    if how == "deleted":
        del world.kube.objects[("Secret", NS, SECRET)]
    else:
        write_secret(world, nkey=encode_public_key(bytes(32)), seed=None)
    await world.settle()
    assert world.entries()[0]["nkey"] == before
    assert "user" not in world.entries()[0]
    connected(world, 1, 0)
    await world.settle()
    assert world.numbers() == [2]


@pytest.mark.parametrize("last", [0, "x"])
async def test_an_annotation_that_is_wrong_stops_no_other_user(world: Users, last: object) -> None:
    world.user()
    await world.settle()
    told = json.dumps({"current": 1, "last": last})
    note = {"supercluster.dev/credentials": told}
    world.change("Secret", SECRET, lambda body: body["metadata"]["annotations"].update(note))
    world.user("other")
    await world.settle(4)
    assert world.numbers("other") == [1]
    assert world.numbers() == [1]
    world.delete(USER)
    await world.settle(4)
    if last == "x":
        assert "delete the Secret" in condition(world.status(USER), "Ready")["message"]
        del world.kube.objects[("Secret", NS, SECRET)]
        await world.settle(14)
    assert ("User", NS, "billing") not in world.kube.objects or world.numbers() == [1]


async def test_the_same_password_once_more_is_the_newer_credential_for_brokers(world: Users) -> None:
    """Brokers take the first entry that fits; clients count as showing that."""
    give(world, {"password": "first"})
    world.user(authentication={"passwordFrom": {"name": "mine"}})
    await world.settle()
    connected(world, 1, 1)
    del world.kube.objects[("Secret", NS, SECRET)]
    await world.settle(4)
    newer, former = world.entries()
    assert newer["credential"] == world.label(2)
    assert newer["password"] == former["password"], "who is connected counts as showing the newer one"
    connected(world, 1, 0)
    connected(world, 2, 1)
    await world.settle()
    assert world.numbers() == [2]


async def test_a_public_key_waits_until_brokers_have_dropped_it_from_another_user(world: Users) -> None:
    one, other = encode_public_key(bytes(32)), encode_public_key(bytes([1] * 32))
    world.user(authentication={"type": "NKey", "publicKey": one})
    await world.settle()
    connected(world, 1, 1)
    world.change("User", "billing", lambda body: body["spec"]["authentication"].update({"publicKey": other}))
    world.user("second", authentication={"type": "NKey", "publicKey": one})
    await world.settle()
    assert world.numbers("second") == []
    accepted = condition(world.status(Key("User", NS, "second")), "Accepted")
    assert "belongs to User billing, for which brokers accept it still" in accepted["message"]
    connected(world, 1, 0)
    await world.settle(14)
    assert world.numbers("second") == [1]


async def test_a_deadline_never_takes_the_last_credential(world: Users) -> None:
    world.user(rotation={"deadlineAfter": "1m"})
    await world.settle()
    connected(world, 1, 1)
    wrong = {"publish": {"allow": ["a..b"]}}
    world.change("User", "billing", lambda body: body["spec"].update({"permissions": wrong}))
    write_secret(world, password="by-hand")
    await world.settle(20)
    assert world.numbers() == [1]


async def test_a_restored_user_that_is_deleted_goes(world: Users) -> None:
    world.user()
    await world.settle()
    saved = copy.deepcopy(world.kube.objects[("Secret", NS, SECRET)])
    world.edit(counter=1)
    await world.settle()
    world.change("Secret", SECRET, lambda body: body.update({"data": saved["data"]}))
    annotations = saved["metadata"]["annotations"]
    world.change("Secret", SECRET, lambda body: body["metadata"].update({"annotations": annotations}))
    world.delete(USER)
    await world.settle()
    assert ("User", NS, "billing") not in world.kube.objects
    assert world.entries() == []


@pytest.mark.parametrize("owners", [[], [{"kind": "User", "name": "billing", "uid": "of-before"}]])
async def test_a_restored_secret_gets_its_user_as_owner(world: Users, owners: list[dict[str, str]]) -> None:
    world.user()
    await world.settle()
    wanted = world.kube.objects[("Secret", NS, SECRET)]["metadata"]["ownerReferences"]
    world.change("Secret", SECRET, lambda body: body["metadata"].update({"ownerReferences": owners}))
    await world.settle()
    assert world.kube.objects[("Secret", NS, SECRET)]["metadata"]["ownerReferences"] == wanted
    assert world.numbers() == [1]


async def test_a_next_password_that_was_changed_is_published_to_nobody(world: Users) -> None:
    world.user()
    await world.settle()
    world.late = {"east-0"}
    world.edit(counter=1)
    await world.settle(4)
    write_secret(world, nextPassword="changed")
    world.late = set()
    await world.settle()
    assert world.secret(SECRET)["password"] != "changed"
    assert all(world.accepts(each, world.secret(SECRET)["password"]) for each in BROKERS)
