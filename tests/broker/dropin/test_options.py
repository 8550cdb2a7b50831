"""What nats-server's configuration and flags come to, and what is refused, warned of, or unknown."""

from __future__ import annotations

import pytest

from supercluster.broker.dropin import flags, main
from supercluster.broker.dropin.conf import ConfError, parse
from supercluster.broker.dropin.credentials import NamedUsers
from supercluster.broker.dropin.flags import FlagError
from supercluster.broker.dropin.options import Address, JetStreamLimits, Options, UserOption, read
from supercluster.broker.protocol.permissions import Permissions, Responses, Rules


def options(text: str) -> Options:
    def no_file(file: str, name: str) -> tuple[str, str]:
        raise FileNotFoundError(name)

    return read(parse(text, "f.conf", read=no_file, environment={}))


def test_a_server_is_described_as_in_nats_servers_documents() -> None:
    found = options(
        """
        server_name: s1
        listen: 127.0.0.1:-1
        http: 8222
        max_payload: 2MB, max_conn: 10, ping_interval: "1m30s", ping_max: 3, lame_duck_duration: 20
        jetstream { store_dir: /data, max_mem: 64MB, max_file: 1G, sync_interval: 5s }
        PEOPLE = [{user: a, password: b}]
        accounts {
          A { users: $PEOPLE, jetstream { max_streams: 2, max_file: 1MB } }
          B { users [{user: c, pass: 12}], jetstream: enabled }
          SYS { users [{user: s, pass: t}] }
        }
        system_account: SYS, no_auth_user: a
        cluster { name: east }
        server_tags: [x, y]
        """
    )
    assert found.listen == Address("127.0.0.1", -1)
    assert found.monitor == Address("0.0.0.0", 8222)
    assert (found.max_payload_bytes, found.max_connections) == (2 << 20, 10)
    assert (found.ping_interval_ms, found.pings_out_max, found.lame_duck_ms) == (90_000, 3, 20_000)
    assert found.jetstream
    assert (found.store_dir, found.max_memory_bytes, found.max_file_bytes) == ("/data", 64 << 20, 10**9)
    assert found.sync_interval_ms == 5000
    assert found.users == (UserOption("A", "a", "b"), UserOption("B", "c", "12"), UserOption("SYS", "s", "t"))
    assert dict(found.account_limits) == {
        "A": JetStreamLimits(file_bytes=1 << 20, streams=2),
        "B": JetStreamLimits(),
        "SYS": None,
    }
    assert (found.cluster_name, found.tags, found.warnings) == ("east", ("x", "y"), ())
    users = NamedUsers(found)
    assert users.find("", "", "") == users.users[0]
    assert [user.role for user in users.users] == ["client", "client", "system"]
    assert users.find("c", "12", "") == users.users[1]
    assert users.find("c", "13", "") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nfoo: 2", 'f.conf:1:1: unknown field "a"'),
        ("jetstream {\n store: x }", 'f.conf:2:2: unknown field "jetstream.store"'),
        ("port: abc", "port has to be a whole number from -1 to 65535, not 'abc'"),
        ("listen: h:99999", "listen has to be host:port"),
        ("debug: maybe", "debug has to be true or false, not 'maybe'"),
        ("ping_interval: 2y", "ping_interval has to be a time"),
        ("server_name: 'a b'", "server_name has to be"),
        ("jetstream: {key: abc}", "jetstream.key: encryption at rest is not there"),
        ("leafnodes {}", "leafnodes: leaf nodes are not there"),
        ("mqtt {}", "mqtt: MQTT is not there"),
        ("operator: x.jwt", "operator: accounts by JWT are not there"),
        ("resolver: MEMORY", "resolver: accounts by JWT are not there"),
        ("tls {}", "tls: TLS for clients"),
        ("cluster { routes: [nats://h:1] }", "cluster.routes: "),
        ("accounts { A { imports: [] } }", "accounts.A.imports: "),
        (
            "authorization { users [{user: a, permissions { publish: 'a b' }}] }",
            "publish: 'a b' is no subject",
        ),
        ("authorization { users [{user: a, permissions { pub: [a..b] }}] }", "publish: 'a..b' is no subject"),
        (
            "authorization { users [{user: a, permissions { sub: {alow: x} }}] }",
            'users.permissions.subscribe.alow"',
        ),
        ("authorization { users [{password: b}] }", "a user needs a name"),
        ("authorization { user: a, users [{user: b}] }", "only one of them"),
        ("authorization { user: a, password: $2a$11$x }", "hashed with bcrypt"),
        ("accounts { A { users [{user: a}] }, B { users [{user: a}] } }", "named twice"),
        ("no_auth_user: x", "no_auth_user 'x' is none of the users"),
        ("accounts: 3", "accounts has to be a map"),
    ],
)
def test_what_can_not_be_carried_out_is_an_error_with_its_place(text: str, said: str) -> None:
    with pytest.raises(ConfError) as error:
        options(text)
    assert said in str(error.value)
    assert str(error.value).startswith("f.conf:")


def test_permissions_are_the_users_own_or_the_usual_ones() -> None:
    found = options(
        """
        authorization {
          default_permissions { publish: x, subscribe: [a.>, "b q"] }
          users [
            {user: a, permissions { subscribe { allow: c, deny: [c.d] }, allow_responses: {max: 3, expires: 5s} }}
            {user: b}
            {user: c, permissions { allow_responses: true, publish: y }}
          ]
        }
        """
    )
    own, usual, last = (user.permissions for user in found.users)
    assert own == Permissions(Rules(()), Rules((b"c",), (b"c.d",)), Responses(3, 5000))
    assert usual == Permissions(Rules((b"x",)), Rules((b"a.>", b"b q")))
    assert last == Permissions(Rules((b"y",)), Rules(), Responses())
    assert NamedUsers(found).users[1].permissions == usual


def test_passwords_are_never_shown() -> None:
    found = options("authorization { user: a, password: geheim }")
    assert "geheim" not in repr(found)
    with pytest.raises(ConfError) as error:
        options("authorization { user: a, password: [geheim] }")
    assert "geheim" not in str(error.value)


def test_what_only_looks_different_is_a_warning() -> None:
    found = options("prof_port: 1\ncluster { listen: h:6222 }")
    assert found.warnings == (
        "f.conf:2:11: cluster.listen has no effect here",
        "f.conf:1:1: prof_port has no effect here",
    )


def test_flags_go_before_the_file_with_one_dash_or_two() -> None:
    given = flags.parse(
        [
            "-p",
            "-1",
            "--addr=127.0.0.1",
            "-js",
            "-sd",
            "/d",
            "-n=x",
            "-m",
            "8222",
            "--user",
            "u",
            "--pass",
            "p",
            "-D",
            "-V",
        ]
    )
    found = flags.applied(
        given, options("port: 1\nhttp: 9.9.9.9:1\ndebug: false\nauthorization { token: t }")
    )
    assert found.listen == Address("127.0.0.1", -1)
    assert found.monitor == Address("127.0.0.1", 8222)
    assert found.jetstream
    assert found.debug
    assert (found.store_dir, found.server_name) == ("/d", "x")
    assert found.users == (UserOption(user="u", password="p"),)
    assert found.warnings == ("-V has no effect here",)
    assert flags.applied(flags.parse(["-js=false"]), options("jetstream: true")).jetstream is False
    assert flags.applied(flags.parse(["--auth", "t"]), Options()).users == (UserOption(token="t"),)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prot", "1"], "--prot is no flag"),
        (["x"], "'x' is no flag"),
        (["-p"], "-p lacks its value"),
        (["-p", "x"], "--port is 'x'"),
        (["--tls"], "TLS for clients"),
        (["--routes", "nats://h:1"], "declared"),
        (["--pass", "x"], "without --user"),
        (["-js=maybe"], "true or false"),
    ],
)
def test_flags_that_can_not_be_used_are_named(words: list[str], said: str) -> None:
    with pytest.raises(FlagError) as error:
        flags.applied(flags.parse(words), Options())
    assert said in str(error.value)


def test_a_file_is_checked_without_a_server(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    file = f"{tmp_path}/a.conf"
    with open(file, "w", encoding="utf-8") as out:
        out.write("port: 4222\n")
    assert main.main(["-t", "-c", file]) == 0
    assert "is valid" in capsys.readouterr().err
    with open(file, "a", encoding="utf-8") as out:
        out.write("prot: 1\n")
    assert main.main(["-t", "-c", file]) == 1
    assert f'{file}:2:1: unknown field "prot"' in capsys.readouterr().err
    assert main.main(["-c", f"{file}.not"]) == 1
    assert "can't be read" in capsys.readouterr().err
