"""TLS, WebSocket, nkeys and hashed passwords in nats-server's configuration and flags."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.nkeys import Nkey

from supercluster.broker.dropin import flags, main
from supercluster.broker.dropin.addresses import Address
from supercluster.broker.dropin.conf import ConfError, parse
from supercluster.broker.dropin.credentials import users_of
from supercluster.broker.dropin.flags import FlagError
from supercluster.broker.dropin.options import Options, read
from supercluster.broker.dropin.startup_options import by_name_alone
from supercluster.broker.settings.settings import ClientTls

PAIR = 'cert_file: "c.pem", key_file: "k.pem"'
HASH = "$2a$04$FHxS9YPi/Yu8a7Ut.5afLuRYxPp6IDgTjjLsxuElMd/ZQBDYwOd66"


def options(text: str) -> Options:
    return read(parse(text, "a.conf", read=lambda file, name: (name, ""), environment={}))


def tls(**more: Any) -> ClientTls:
    return ClientTls(Path("c.pem"), Path("k.pem"), **more)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", tls()),
        ('ca_file: "a.pem", verify: true', tls(ca_file=Path("a.pem"), verify=True)),
        ("verify_and_map: true, timeout: 3", tls(verify_and_map=True, timeout_ms=3000)),
        ("timeout: 0.5", tls(timeout_ms=500)),
        ('timeout: "1500ms"', tls(timeout_ms=1500)),
        ("handshake_first: true", tls(handshake_first=True)),
        ("handshake_first: auto", tls(handshake_first=True, first_wait_ms=50)),
        ('handshake_first: "300ms"', tls(handshake_first=True, first_wait_ms=300)),
        ("handshake_first: false", tls()),
        ('min_version: "1.3"', tls(min_version="1.3")),
        (
            "cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]",
            tls(ciphers="ECDHE-ECDSA-AES128-GCM-SHA256"),
        ),
        ("cipher_suites: [TLS_AES_128_GCM_SHA256]", tls(min_version="1.3")),
        ("min_version: 1.2, cipher_suites: [TLS_AES_256_GCM_SHA384]", tls(min_version="1.3")),
    ],
)
def test_a_block_says_what_it_says_in_nats_server(text: str, wanted: ClientTls) -> None:
    found = options(f"tls {{ {PAIR}\n {text} }}")
    assert found.tls == wanted
    assert found.warnings == ()
    assert found.limits.auth_timeout_ms == wanted.timeout_ms + 1000


def test_a_list_of_one_certificate_is_that_certificate() -> None:
    assert options(f"tls {{ certs: [{{ {PAIR} }}] }}").tls == tls()


def test_plain_clients_may_be_let_in_beside() -> None:
    assert options(f"allow_non_tls: true\ntls {{ {PAIR} }}").tls == tls(allow_plain=True)
    assert options("allow_non_tls: true").tls is None


def test_what_only_looks_different_is_named() -> None:
    found = options(f"tls {{ {PAIR}\n curve_preferences: [X25519]\n connection_rate_limit: 5 }}")
    assert found.warnings == (
        "a.conf:2:2: tls.curve_preferences has no effect here",
        "a.conf:3:2: tls.connection_rate_limit has no effect here",
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tls { }", r"a\.conf:1:1: tls needs cert_file: a certificate \(cert_file\) and its key"),
        ('tls { cert_file: "c" }', r"a\.conf:1:1: tls needs key_file"),
        (f"tls {{ {PAIR}\n handshake_first: 3 }}", r"a\.conf:2:2: handshake_first has to be true, .* not 3"),
        (f"tls {{ {PAIR}\n handshake_first: soon }}", r"a\.conf:2:2: handshake_first has to be true"),
        (f"tls {{ {PAIR}\n timeout: never }}", r"a\.conf:2:2: tls\.timeout has to be a time"),
        (f'tls {{ {PAIR}\n min_version: "1.1" }}', r"a\.conf:2:2: min_version has to be 1\.2 or 1\.3"),
        (f"tls {{ {PAIR}\n cipher_suites: [TLS_RSA_WITH_RC4_128_SHA] }}", r"a\.conf:2:18: cipher_suites: "),
        (f"tls {{ {PAIR}\n cipher_suites: [] }}", r"a\.conf:2:2: cipher_suites is empty"),
        (f"tls {{ {PAIR}\n pinned_certs: [] }}", r"a\.conf:2:2: tls\.pinned_certs: admitting only some"),
        (f"tls {{ {PAIR}\n ocsp_peer: true }}", r"a\.conf:2:2: tls\.ocsp_peer: admitting only some"),
        (f"tls {{ {PAIR}\n cert_store: x }}", r"a\.conf:2:2: tls\.cert_store: "),
        (f"tls {{ {PAIR}\n certificate: x }}", r'a\.conf:2:2: unknown field "tls\.certificate"'),
        (f"tls {{ certs: [{{ {PAIR} }},\n {{ {PAIR} }}] }}", r"a\.conf:2:2: certs: a second certificate"),
        ("websocket { port: 80 }", r"a\.conf:1:1: websocket needs tls, or no_tls: true"),
        (
            "websocket { no_tls: true\n same_origin: 1 }",
            r"a\.conf:2:2: websocket\.same_origin has to be true",
        ),
        (
            "websocket { no_tls: true\n jwt_cookie: x }",
            r"a\.conf:2:2: websocket\.jwt_cookie: accounts by JWT are not",
        ),
        ("websocket { no_tls: true\n prot: 1 }", r'a\.conf:2:2: unknown field "websocket\.prot"'),
        ("operator: x", r"a\.conf:1:1: operator: accounts by JWT are not supported"),
        ("resolver: MEMORY", r"a\.conf:1:1: resolver: accounts by JWT are not supported"),
    ],
)
def test_errors_say_where_and_why(text: str, why: str) -> None:
    with pytest.raises(ConfError, match=f"^{why}"):
        options(text)


def test_a_websocket_listener_has_an_address_and_tls_or_none() -> None:
    found = options('websocket { listen: "127.0.0.1:8080", no_tls: true }')
    assert (found.websocket, found.websocket_tls) == (Address("127.0.0.1", 8080), None)
    found = options(f"websocket {{ port: -1, tls {{ {PAIR} }}, compression: true }}")
    assert (found.websocket, found.websocket_tls) == (Address("0.0.0.0", -1), tls())
    assert (
        found.warnings == ("a.conf:1:1: websocket.compression has no effect here",)
        or len(found.warnings) == 1
    )
    assert options("").websocket == Address()


def test_users_come_by_nkey_and_with_hashed_passwords() -> None:
    key = Nkey().public
    found = options(
        f'authorization {{ users [ {{nkey: {key}, permissions {{publish: a}}}}, {{user: h, password: "{HASH}"}} ] }}'
    )
    by_key, hashed = users_of(found)
    assert (by_key.user, by_key.nkey, hashed.user, hashed.password) == ("", key, "h", HASH)
    assert by_key.permissions is not None
    found = options(f"accounts {{ A {{ users [ {{nkey: {key}}} ] }} }}")
    (user,) = users_of(found)
    assert (user.account, user.nkey) == ("A", key)


BARE = "authorization { users [ {user: bare}, {user: safe, password: p}, {nkey: KEY} ] }".replace(
    "KEY", Nkey().public
)
SAID = "user 'bare' has no password, and the port for"


@pytest.mark.parametrize(
    ("ports", "warnings"),
    [
        (f"tls {{ {PAIR}, verify_and_map: true }}", []),
        (f"tls {{ {PAIR}, verify_and_map: true }}\nwebsocket {{ port: 80, no_tls: true }}", ["websocket"]),
        (
            f"tls {{ {PAIR}, verify_and_map: true }}\nwebsocket {{ port: 80, tls {{ {PAIR} }} }}",
            ["websocket"],
        ),
        (
            f"tls {{ {PAIR}, verify_and_map: true }}\nwebsocket {{ port: 80, tls {{ {PAIR}, verify_and_map: true }} }}",
            [],
        ),
        (f"websocket {{ port: 80, tls {{ {PAIR}, verify_and_map: true }} }}", ["clients"]),
        (f"tls {{ {PAIR} }}\nwebsocket {{ port: 80, no_tls: true }}", []),
    ],
)
def test_who_needs_a_certificate_on_one_port_and_only_a_name_on_another_is_named(
    ports: str, warnings: list[str]
) -> None:
    assert by_name_alone(options(f"{BARE}\n{ports}")) == [
        f"{SAID} {port} identifies clients by no certificate: the name alone logs in there"
        for port in warnings
    ]


@pytest.mark.parametrize(
    ("user", "why"),
    [
        (f"{{nkey: {Nkey().seed}}}", "nkey is a seed, which is the secret half"),
        ("{nkey: UABC}", "nkey has to be a user's public key"),
        (f"{{nkey: {Nkey().public}, user: a}}", "a user needs a name .* not both"),
        (f"{{nkey: {Nkey().public}, password: hush}}", "a user by nkey has no password"),
        ("{password: hush}", "a user needs a name"),
        ('{user: a, password: "$2a$99$hush"}', "password begins like a bcrypt hash and is none"),
    ],
)
def test_wrong_users_are_said_without_their_secrets(user: str, why: str) -> None:
    with pytest.raises(ConfError, match=why) as found:
        options(f"authorization {{ users [\n {user} ] }}")
    assert str(found.value).startswith("a.conf:2:")
    assert "hush" not in str(found.value)
    assert Nkey().seed not in str(found.value)


def flagged(*words: str, text: str = "") -> Options:
    return flags.applied(flags.parse(words), options(text))


def test_flags_go_before_the_file() -> None:
    assert flagged("--tlscert", "c.pem", "--tlskey", "k.pem").tls == tls()
    found = flagged(
        "--tlsverify", "--tlscert=c.pem", "--tlskey=k.pem", "--tlscacert=a.pem", text=f"tls {{{PAIR}}}"
    )
    assert found.tls == tls(ca_file=Path("a.pem"), verify=True)
    assert flagged(text=f"tls {{ {PAIR}, verify: true }}").tls == tls(verify=True)
    assert flagged("--tls=false", text=f"tls {{ {PAIR} }}").tls is None


@pytest.mark.parametrize("words", [("--tls",), ("--tlsverify",), ("--tls", "--tlscert", "c")])
def test_flags_need_a_certificate_and_its_key(words: tuple[str, ...]) -> None:
    with pytest.raises(FlagError, match="TLS needs a certificate and its key"):
        flagged(*words)


def test_files_that_can_not_be_used_end_the_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificate = Authority(tmp_path, "ours").sign("server")
    file = tmp_path / "a.conf"
    file.write_text("port: 4222")
    words = ["--tls", "--tlscert", str(certificate.cert), "--tlskey", str(certificate.cert)]
    words += ["-t", "-c", str(file)]
    assert main.main(words) == 1
    assert "tls: certFile" in capsys.readouterr().err
    words[4] = str(certificate.key)
    assert main.main(words) == 0
