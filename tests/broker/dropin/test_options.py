"""What nats-server's configuration and flags come to, and what is refused, warned of, or unknown."""

from __future__ import annotations

import pytest

from supercluster.broker.auth.users import Shown, User
from supercluster.broker.dropin import flags, main
from supercluster.broker.dropin.addresses import Address
from supercluster.broker.dropin.conf import ConfError, parse
from supercluster.broker.dropin.credentials import DropInCredentials
from supercluster.broker.dropin.flags import FlagError
from supercluster.broker.dropin.options import SUBSCRIPTIONS_MAX, Options, read
from supercluster.broker.dropin.startup_options import load
from supercluster.broker.protocol.permissions import Permissions, Responses, Rules
from supercluster.broker.protocol.web_origins import WebOrigins
from supercluster.broker.protocol.websocket import WebRules


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
        max_payload: 2MB, max_conn: 10, ping_interval: "1m30s", ping_max: 3, lame_duck_duration: 40s
        lame_duck_grace_period: "3s"
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
    assert (found.limits.max_payload_bytes, found.limits.max_connections) == (2 << 20, 10)
    limits, storage = found.limits, found.jetstream.storage
    assert (limits.ping_interval_ms, limits.pings_out_max) == (90_000, 3)
    assert (limits.lame_duck_grace_ms, limits.lame_duck_duration_ms) == (3_000, 40_000)
    assert found.jetstream.enabled
    assert found.jetstream.store_dir == "/data"
    assert (storage.max_memory_bytes, storage.max_file_bytes) == (64 << 20, 10**9)
    assert storage.sync_interval_ms == 5000
    users = (("A", "a", "b"), ("B", "c", "12"), ("SYS", "s", "t"))
    assert found.users == tuple(User(account, "client", name, word) for account, name, word in users)
    assert dict(found.account_limits) == {
        "A": {"storageBytesMax": 1 << 20, "streamsMax": 2},
        "B": {},
        "SYS": None,
    }
    assert (found.cluster_name, found.tags, found.warnings) == ("east", ("x", "y"), ())
    named = DropInCredentials(found)
    assert named.find(Shown("", "", "")) == named.users[0]
    assert [user.role for user in named.users] == ["client", "client", "system"]
    assert named.find(Shown("c", "12", "")) == named.users[1]
    assert named.find(Shown("c", "13", "")) is None


@pytest.mark.covers("RP-6")
@pytest.mark.parametrize(
    ("told", "interval_ms", "always"),
    [("5s", 5000, False), ("always", 120_000, True), ("Always", 120_000, True)],
)
def test_streams_are_fsynced_at_an_interval_or_always(told: str, interval_ms: int, always: bool) -> None:
    storage = options(f"jetstream {{ sync_interval: {told} }}").jetstream.storage
    assert (storage.sync_interval_ms, storage.sync_always) == (interval_ms, always)


def test_accounts_may_be_a_list_of_names() -> None:
    found = options("accounts [A, B]")
    assert set(found.accounts.accounts) == {"A", "B"}
    assert dict(found.account_limits) == {"A": None, "B": None}


@pytest.mark.parametrize("told", [0, -1])
def test_no_limit_of_connections_is_as_many_as_there_may_be(told: int) -> None:
    assert options(f"max_connections: {told}").limits.max_connections == 1 << 20


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
        ("jetstream: {sync: never}", "jetstream.sync_interval has to be a time"),
        ("jetstream: {key: abc}", "jetstream.key: encryption at rest is not supported"),
        ("leafnodes {}", "leafnodes: leaf nodes are not supported"),
        ("mqtt {}", "mqtt: MQTT is not supported"),
        ("operator: x.jwt", "operator: accounts by JWT are not supported"),
        ("resolver: MEMORY", "resolver: accounts by JWT are not supported"),
        ("cluster { routes: [nats://h:1] }", "cluster: routes need a port of its own"),
        ("accounts { A { imports: 3 } }", "accounts.A: imports has to be a list"),
        (
            "accounts {\n A { exports [{service: x}] }\n B { imports [{service: {account: A, subject: y}}] } }",
            "f.conf:3:15: accounts.B: service import 'y': account 'A' does not export it",
        ),
        (
            'accounts { A { exports [{stream: "a..b"}] } }',
            "accounts.A: stream: 'a..b' is no subject",
        ),
        ("mappings { a: 3 }", "f.conf:1:12: accounts.$G: a mapping's destination"),
        ('jetstream { domain: "a b" }', "jetstream.domain has to be 1 to 63 bytes"),
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
        ("authorization { user: a, password: $2a$11$x }", "password begins like a bcrypt hash and is none"),
        ("accounts { A { users [{user: a}] }, B { users [{user: a}] } }", "named twice"),
        ("no_auth_user: x", "no_auth_user 'x' is none of the users"),
        ("websocket { no_tls: true, no_auth_user: x }", "no_auth_user 'x' is none of the users"),
        (
            "websocket { no_tls: true\n allowed_origins: [http://a, localhost] }",
            "f.conf:2:30: websocket.allowed_origins: 'localhost' is no address as in http://localhost:3000",
        ),
        (
            "websocket { no_tls: true, jwt_cookie: j }",
            "websocket.jwt_cookie: accounts by JWT are not supported",
        ),
        ("accounts: 3", "accounts has to be a map"),
        ("accounts [A, A]", "f.conf:1:14: accounts: 'A' is no name of an account, or is named twice"),
        ("accounts [[A]]", "accounts: a list is no name"),
        ('accounts { "$G" { users [] } }', "accounts.$G: it is there by itself"),
        ("accounts { A { limits {max_conns: 1} } }", 'unknown field "accounts.A.limits.max_conns"'),
        ("authorization { users [{user: a, password: b}, {user: a, password: c}] }", "named twice"),
        ("authorization { user: a, password: b, token: c }", "a token and a user; only one of them"),
        (
            "lame_duck_duration: 30s, lame_duck_grace_period: 30s",
            "lame_duck_grace_period (30000 ms) has to be shorter than lame_duck_duration (30000 ms)",
        ),
        ("lame_duck_duration: 10s", "lame_duck_duration has to be a time from 30000 ms"),
        ("max_payload: 64MB", "max_payload has to be a whole number from 1 to 33554432"),
        ("server_name: a.b", "server_name has to be 1 to 63 bytes without spaces and . * > @"),
        ("cluster { name: a.b, port: 1 }", "cluster.name has to be 1 to 63 bytes without spaces and . *"),
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
    assert DropInCredentials(found).users[1].permissions == usual


def test_passwords_are_never_shown() -> None:
    found = options("authorization { user: a, password: geheim }")
    assert "geheim" not in repr(found)
    with pytest.raises(ConfError) as error:
        options("authorization { user: a, password: [geheim] }")
    assert "geheim" not in str(error.value)


def test_what_only_looks_different_is_a_warning() -> None:
    found = options("prof_port: 1\ncluster { pool_size: 3 }")
    assert found.warnings == (
        "f.conf:2:11: cluster.pool_size has no effect here",
        "f.conf:1:1: prof_port has no effect here",
    )


def test_what_is_no_limit_is_the_usual_one() -> None:
    found = options(
        """
        max_payload: 0, max_pending: 0, max_control_line: 0, ping_max: 0, max_subscriptions: -1
        jetstream { max_mem: -1, max_file: -1 }
        """
    )
    usual = Options().limits
    for name in ("max_payload_bytes", "max_pending_bytes", "max_control_line_bytes", "pings_out_max"):
        assert getattr(found.limits, name) == getattr(usual, name)
    storage = found.jetstream.storage
    assert (storage.max_memory_bytes, storage.max_file_bytes) == (0, 0)
    assert found.limits.max_subscriptions == usual.max_subscriptions == SUBSCRIPTIONS_MAX
    with pytest.raises(ConfError, match="max_payload has to be a whole number from 1 to 33554432, not False"):
        options("max_payload: false")


@pytest.mark.parametrize("name", ["threshold", "response_threshold", "response_max_time", "response_time"])
def test_how_long_an_answer_may_take_has_the_names_that_nats_server_knows(name: str) -> None:
    text = f'accounts {{ A {{ exports [{{service: q, {name}: "500ms"}}] }} }}'
    named = options('accounts { A { exports [{service: q, response_threshold: "500ms"}] } }')
    assert (
        options(text).accounts
        == named.accounts
        != options("accounts { A { exports [{service: q}] } }").accounts
    )


def test_what_is_switched_off_is_no_warning() -> None:
    found = options("trace: false\nlogtime: true\nwebsocket { port: -1, no_tls: true, compression: false }")
    assert found.warnings == ()


def test_the_store_directory_may_stand_outside_of_jetstreams_block() -> None:
    assert options("store_dir: /a\njetstream: enabled").jetstream.store_dir == "/a"
    assert options("store_dir: /a\njetstream { store_dir: /b }").jetstream.store_dir == "/b"


def test_the_websocket_port_says_who_may_come_by_it() -> None:
    found = options(
        """
        websocket {
          port: 8080, no_tls: true, same_origin: true, allowed_origins: "https://a"
          no_auth_user: b, token_cookie: t
        }
        authorization { users [{user: a, password: p}, {user: b, password: p}] }
        no_auth_user: a
        """
    )
    assert found.web_rules == WebRules(
        WebOrigins(True, frozenset({("https", "a", 443)})), {"auth_token": "t"}
    )
    users = DropInCredentials(found)
    assert [users.find(Shown(connection_type=way)) for way in ("STANDARD", "WEBSOCKET")] == list(users.users)


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
    assert found.jetstream.enabled
    assert found.debug
    assert (found.jetstream.store_dir, found.server_name) == ("/d", "x")
    assert found.users == (User("$G", "client", "u", "p"),)
    assert found.warnings == ("-V has no effect here",)
    assert flags.applied(flags.parse(["-js=false"]), options("jetstream: true")).jetstream.enabled is False
    users = flags.applied(flags.parse(["--auth", "t"]), Options()).users
    assert users == (User("$G", "client", token="t"),)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prot", "1"], "--prot is no flag"),
        (["x"], "'x' is no flag"),
        (["-p"], "-p lacks its value"),
        (["-p", "x"], "--port is 'x'"),
        (["--tls"], "TLS needs a certificate"),
        (["--routes", "nats://h:1"], "--routes needs a port"),
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
    with open(file, "w", encoding="utf-8") as out:
        out.write("# nothing\n")
    assert main.main(["-t", "-c", file]) == 1
    why = f"{file}: config has no values or is empty"
    assert why in capsys.readouterr().err
    assert load(flags.parse(["-c", file]), {}).warnings == (why,)


@pytest.mark.parametrize(
    "text",
    [
        "max_payload: " + "9" * 5000,
        "ping_interval: " + "9" * 400 + ".5",
        "max_connections: " + "9" * 5000 + "K",
        "http: " + "9" * 5000,
        'listen: "a:²"',
        "x = " + "9" * 5000 + "\nport: $x",
    ],
)
def test_a_number_that_is_too_long_is_a_mistake_in_the_file(text: str) -> None:
    """A traceback would say neither where nor what."""
    with pytest.raises(ConfError, match=r"f\.conf:"):
        options(text)
