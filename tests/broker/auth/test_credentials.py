"""Credentials: several at once, read again when they change, never shown."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from tests.support.nkeys import Nkey

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import ClientLimits, CredentialsError, Shown, User
from supercluster.broker.net.links.resolver import Resolver, parse_hosts

OLD = {"user": "app", "password": "old-secret"}
NEW = {"user": "app", "password": "new-secret", "role": "operator"}


def write(folder: Path, name: str, document: Any) -> None:
    (folder / name).write_text(json.dumps(document))


def test_without_files_nobody_is_asked(tmp_path: Path) -> None:
    for folder in (None, tmp_path):
        credentials = Credentials(folder)
        credentials.load()
        assert credentials.users == ()
        assert credentials.links.accepts("any", "thing")


@pytest.mark.covers("CL-5")
def test_old_and_new_are_valid_together_until_the_old_are_dropped(tmp_path: Path) -> None:
    write(tmp_path, "users.json", {"users": [OLD, NEW]})
    credentials = Credentials(tmp_path)
    credentials.load()
    assert credentials.find(Shown("app", "old-secret", "")) is not None
    found = credentials.find(Shown("app", "new-secret", ""))
    assert found is not None
    assert found.is_operator
    assert not credentials.refresh()
    write(tmp_path, "users.json", {"users": [NEW]})
    assert credentials.refresh()
    assert credentials.find(Shown("app", "old-secret", "")) is None


def test_with_users_but_no_secret_of_the_cluster_no_broker_is_let_in(tmp_path: Path) -> None:
    write(tmp_path, "users.json", {"users": [OLD]})
    credentials = Credentials(tmp_path)
    credentials.load()
    assert not credentials.links.accepts("", "")
    assert not credentials.links.accepts("app", "old-secret")
    write(tmp_path, "cluster.json", {"accept": [{"user": "c", "password": "p"}]})
    credentials.load()
    assert credentials.links.accepts("c", "p")


def test_who_has_no_password_logs_in_by_a_certificate_alone() -> None:
    credentials = Credentials(None)
    credentials.users = (User("$G", "operator", "ops"),)
    certificate = {"subject": ((("commonName", "ops"),),), "subjectAltName": (("DNS", "ops"),)}
    assert credentials.find(Shown("ops", "")) is None
    found = credentials.find(Shown("", "", certificate=certificate))
    assert found is not None
    assert found.user == "ops"


def test_a_file_that_nests_too_deeply_leaves_the_users_as_they_were(tmp_path: Path) -> None:
    write(tmp_path, "users.json", {"users": [OLD]})
    credentials = Credentials(tmp_path)
    credentials.load()
    (tmp_path / "users.json").write_text("[" * 100_000)
    assert not credentials.refresh()
    assert credentials.find(Shown("app", "old-secret")) is not None


def test_tokens_and_passwords_are_not_mixed_up(tmp_path: Path) -> None:
    write(tmp_path, "users.json", {"users": [{"token": "t"}, {"user": "a", "password": "p"}]})
    credentials = Credentials(tmp_path)
    credentials.load()
    assert credentials.find(Shown("", "", "t")) is not None
    for wrong in (("", "t", ""), ("t", "", ""), ("a", "", "p"), ("", "", ""), ("a", "p ", "")):
        assert credentials.find(Shown(*wrong)) is None


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ([], r"has to be \{\"users\""),
        ({"users": [7]}, r"users\[0\] has to be an object"),
        ({"users": [{}]}, r"users\[0\] needs one of user \(with password\), token and nkey"),
        ({"users": [{"user": "a", "password": "$2a$04$hush"}]}, r"users\[0\]\.password begins like a bcrypt"),
        (
            {"users": [{"token": "$2a$31$" + 50 * "h" + "ush"}]},
            r"users\[0\]\.token is a bcrypt hash of cost 31; it has to be from 4 to 16",
        ),
        ({"users": [{"nkey": "Uhush"}]}, r"users\[0\]\.nkey has to be a user's public key"),
        ({"users": [{"nkey": Nkey().seed}]}, r"users\[0\]\.nkey is a seed"),
        ({"users": [{"nkey": Nkey().public[:-1] + "A"}]}, r"users\[0\]\.nkey has a wrong check sum"),
        ({"users": [{"nkey": Nkey().public, "password": "hush"}]}, r"users\[0\] has nkey and password"),
        (
            {"users": [{"user": "a", "password": "hush", "role": "king"}]},
            r"users\[0\]\.role has to be one of client",
        ),
        ({"users": [{"user": "a", "password": 5}]}, r"users\[0\]\.password has to be a text"),
        ({"users": [{"user": "a", "pass": "hush"}]}, r"users\[0\]\.pass is no known field"),
    ],
)
def test_errors_name_the_place_but_no_secret(tmp_path: Path, document: Any, text: str) -> None:
    write(tmp_path, "users.json", document)
    with pytest.raises(CredentialsError, match=text) as found:
        Credentials(tmp_path).load()
    assert "hush" not in str(found.value)


def test_a_file_that_breaks_later_leaves_the_old_ones_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "users.json", {"users": [OLD]})
    credentials = Credentials(tmp_path)
    credentials.load()
    (tmp_path / "users.json").write_text("{")
    assert not credentials.refresh()
    (tmp_path / "users.json").unlink()
    assert not credentials.refresh()
    assert credentials.find(Shown("app", "old-secret", "")) is not None
    assert "stay as they were" in caplog.text
    assert "old-secret" not in caplog.text
    assert "old-secret" not in repr(credentials.users)


@pytest.mark.covers("CL-3")
def test_links_have_credentials_of_their_own(tmp_path: Path) -> None:
    accept = [{"user": "route", "password": "a"}, {"user": "route", "password": "b"}]
    write(tmp_path, "cluster.json", {"accept": accept, "send": accept[1]})
    credentials = Credentials(tmp_path)
    credentials.load()
    assert credentials.links.accepts("route", "a")
    assert credentials.links.accepts("route", "b")
    assert not credentials.links.accepts("route", "c")
    assert not credentials.links.accepts("", "")
    assert credentials.links.send.password == "b"
    assert credentials.users == ()


@pytest.mark.covers("CL-3", "CL-6")
def test_the_gateway_port_has_its_own_and_is_no_way_around_the_others(tmp_path: Path) -> None:
    credentials = Credentials(tmp_path)
    credentials.load()
    assert credentials.gateways.accepts("", ""), "without any credentials there is no secret to know"
    write(tmp_path, "cluster.json", {"accept": [{"user": "route", "password": "a"}]})
    assert credentials.refresh()
    assert not credentials.gateways.accepts("", "")
    assert not credentials.gateways.accepts("route", "a")
    gateway = {"user": "gateway", "password": "g"}
    write(tmp_path, "gateway.json", {"accept": [gateway], "send": gateway})
    assert credentials.refresh()
    assert credentials.gateways.accepts("gateway", "g")
    assert not credentials.gateways.accepts("route", "a")
    assert not credentials.links.accepts("gateway", "g")
    assert credentials.gateways.send.password == "g"
    assert "'g'" not in repr(credentials.gateways)


@pytest.mark.parametrize("name", ["cluster.json", "gateway.json", "migration.json"])
def test_files_of_links_that_vanish_open_no_door(tmp_path: Path, name: str, caplog: Any) -> None:
    write(tmp_path, name, {"accept": [{"user": "route", "password": "a"}]})
    credentials = Credentials(tmp_path)
    credentials.load()
    (tmp_path / name).unlink()
    assert not credentials.refresh()
    doors = {"cluster.json": "links", "gateway.json": "gateways", "migration.json": "migrations"}
    door = getattr(credentials, doors[name])
    assert door.accepts("route", "a")
    assert not door.accepts("", "")
    assert f"{name} is gone or empty" in caplog.text


def test_the_hosts_file_has_the_first_word_and_is_read_again(tmp_path: Path) -> None:
    assert parse_hosts("# c\n127.77.0.1 a b # x\nnonsense d\n::1 e\n127.77.0.2 a\n\n") == {
        "a": "127.77.0.1",
        "b": "127.77.0.1",
        "e": "::1",
    }


async def test_names_are_resolved_by_the_hosts_file_then_by_the_system(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    resolver = Resolver(hosts)
    assert await resolver.resolve("127.0.0.9") == "127.0.0.9"
    hosts.write_text("127.77.0.1 east-0.svc\n")
    assert await resolver.resolve("East-0.svc") == "127.77.0.1"
    hosts.write_text("127.77.0.22 east-0.svc\n")
    assert await resolver.resolve("east-0.svc") == "127.77.0.22"
    assert await resolver.resolve("localhost") in ("127.0.0.1", "::1")


@pytest.mark.covers("CL-5")
def test_a_directory_that_was_named_and_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="nope: no such directory"):
        Credentials(tmp_path / "nope").load()


@pytest.mark.covers("SF-24")
def test_a_user_whose_name_no_frame_has_room_for_is_refused(tmp_path: Path) -> None:
    """Requests are passed on with the user's name behind two bytes of length."""
    for name in ("user", "account"):
        write(tmp_path, "users.json", {"users": [{**OLD, name: "ü" * 32_768}]})
        with pytest.raises(CredentialsError, match=rf"users\[0\].{name} has more than 65535 bytes"):
            Credentials(tmp_path).load()


@pytest.mark.covers("SF-24")
@pytest.mark.parametrize("text", ['{"users": NaN}', "[" * 100_000, '{"users": [{"user": "\\ud800"}]}'])
def test_a_file_that_is_no_json_or_none_that_can_be_written_again_is_refused(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "users.json").write_text(text)
    with pytest.raises(CredentialsError, match="can't be read"):
        Credentials(tmp_path).load()


@pytest.mark.covers("CL-5")
def test_a_label_is_read_and_nobody_is_known_by_it(tmp_path: Path) -> None:
    write(tmp_path, "users.json", {"users": [{**OLD, "credential": "3f-1.1"}, NEW]})
    credentials = Credentials(tmp_path)
    credentials.load()
    before = credentials.find(Shown("app", "old-secret"))
    assert before is not None
    assert before.credential == "3f-1.1"
    write(tmp_path, "users.json", {"users": [{**OLD, "credential": "3f-1.2"}, NEW]})
    assert credentials.refresh()
    after = credentials.successor(before)
    assert after is not None
    assert after.credential == "3f-1.2"
    assert after.known_by == before.known_by


@pytest.mark.covers("CL-5")
def test_two_hashes_of_one_user_are_valid_at_once_and_each_is_remembered_as_itself(tmp_path: Path) -> None:
    hashes = {
        password: bcrypt.hashpw(password.encode(), bcrypt.gensalt(4)).decode() for password in ("a", "b")
    }
    write(
        tmp_path,
        "users.json",
        {"users": [{"user": "app", "password": hashes[one], "credential": f"u.{one}"} for one in hashes]},
    )
    credentials = Credentials(tmp_path)
    credentials.load()
    for password in hashes:
        shown = Shown("app", password)
        assert credentials.takes_long(shown), "it belongs in a thread"
        found = credentials.find(shown)
        assert found is not None
        assert found.credential == f"u.{password}"
        credentials.remember(shown, found)
        assert credentials.known(shown) is found
        assert not credentials.takes_long(shown)
    assert credentials.find(Shown("app", "c")) is None
    known = credentials.known(Shown("app", "a"))
    assert known is not None
    assert known.credential == "u.a"


def digest(folder: Path, name: str) -> str:
    return hashlib.sha256((folder / name).read_bytes()).hexdigest()[:16]


@pytest.mark.covers("CL-5")
def test_a_broken_file_holds_up_no_other_file_and_its_digest_is_of_what_is_in_force(tmp_path: Path) -> None:
    write(tmp_path, "users.json", {"users": [OLD]})
    a, b = {"user": "route", "password": "a"}, {"user": "route", "password": "b"}
    write(tmp_path, "cluster.json", {"accept": [a], "send": a})
    credentials = Credentials(tmp_path)
    credentials.load()
    before = {name: file.digest for name, file in credentials.files.items()}
    assert before == {
        "users.json": digest(tmp_path, "users.json"),
        "cluster.json": digest(tmp_path, "cluster.json"),
        "gateway.json": "",
        "migration.json": "",
    }
    write(tmp_path, "users.json", {"users": [{**OLD, "pass": "hush"}]})
    write(tmp_path, "cluster.json", {"accept": [a, b], "send": a})
    assert credentials.refresh()
    assert credentials.links.accepts("route", "b")
    assert credentials.files["cluster.json"].digest == digest(tmp_path, "cluster.json")
    users = credentials.files["users.json"]
    assert users.digest == before["users.json"]
    assert "users[0].pass is no known field" in users.problem
    assert "hush" not in users.problem
    assert not credentials.refresh()
    write(tmp_path, "users.json", {"users": [OLD]})
    (tmp_path / "users.json").write_text((tmp_path / "users.json").read_text() + "\n")
    assert not credentials.refresh(), "the users are the same"
    assert (users.digest, users.problem) == (digest(tmp_path, "users.json"), "")


def test_a_file_that_nobody_thought_of_holds_up_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "users.json", {"users": [OLD]})
    a = {"user": "route", "password": "a"}
    write(tmp_path, "cluster.json", {"accept": [a]})
    credentials = Credentials(tmp_path)
    credentials.load()

    def fails(document: Any) -> Any:
        raise TypeError("nobody thought of that")

    monkeypatch.setattr(credentials.files["users.json"], "_parse", fails)
    write(tmp_path, "users.json", {"users": [NEW]})
    write(tmp_path, "cluster.json", {"accept": [a, {"user": "route", "password": "b"}]})
    assert credentials.refresh()
    assert credentials.links.accepts("route", "b")
    assert credentials.files["users.json"].problem.endswith("users.json can't be used: TypeError")


def test_a_file_that_is_gone_keeps_its_digest_and_says_why(tmp_path: Path) -> None:
    write(tmp_path, "users.json", {"users": [OLD]})
    credentials = Credentials(tmp_path)
    credentials.load()
    users = credentials.files["users.json"]
    before = users.digest
    text = (tmp_path / "users.json").read_text()
    (tmp_path / "users.json").unlink()
    assert not credentials.refresh()
    assert users.digest == before
    assert users.problem == "users.json is gone or empty, which would let anyone in"
    (tmp_path / "users.json").write_text(text)
    assert not credentials.refresh()
    assert (users.digest, users.problem) == (before, "")


def test_a_file_that_could_not_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "users.json", {"users": [OLD]})
    credentials = Credentials(tmp_path)
    credentials.load()
    write(tmp_path, "users.json", {"users": [NEW]})
    with monkeypatch.context() as failing:

        def fails(path: Path) -> bytes:
            raise PermissionError

        failing.setattr(Path, "read_bytes", fails)
        assert not credentials.refresh()
    assert "PermissionError" in credentials.files["users.json"].problem
    assert credentials.refresh()
    assert credentials.files["users.json"].problem == ""


def test_limits_of_a_user_are_read(tmp_path: Path) -> None:
    limits = {"connectionsMax": 3, "payloadBytesMax": 0}
    write(tmp_path, "users.json", {"users": [{**OLD, "limits": limits}, NEW]})
    credentials = Credentials(tmp_path)
    credentials.load()
    assert [user.limits for user in credentials.users] == [ClientLimits(3, -1, 0), ClientLimits()]
    assert ClientLimits(3, -1, 0).within(ClientLimits(2, 5, 9)) == ClientLimits(2, 5, 0)


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ({"credential": 5}, r"users\[0\]\.credential has to be a text"),
        ({"credential": "hush hush"}, "credential has to have at most 64 letters, digits, dots and dashes"),
        ({"credential": 65 * "x"}, "credential has to have at most 64 letters"),
        ({"limits": 5}, r"limits has to be an object with any of connectionsMax, subscriptionsMax"),
        ({"limits": {"connections": 1}}, r"limits\.connections is no known field; known are connectionsMax"),
        ({"limits": {"connectionsMax": -1}}, r"connectionsMax is -1; it has to be a whole number from 0"),
        (
            {"limits": {"payloadBytesMax": True}},
            "payloadBytesMax is True; it has to be a whole number from 0",
        ),
        (
            {"token": "hush", "user": "", "password": "", "limits": {"connectionsMax": 1}},
            "has token and limits; only those by user or nkey are counted",
        ),
    ],
)
def test_wrong_labels_and_limits_are_named(tmp_path: Path, entry: Any, text: str) -> None:
    write(tmp_path, "users.json", {"users": [{**OLD, **entry}]})
    with pytest.raises(CredentialsError, match=text) as found:
        Credentials(tmp_path).load()
    assert "hush" not in str(found.value)
