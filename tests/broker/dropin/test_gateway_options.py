"""Other clusters, as nats-server's configuration names them."""

from __future__ import annotations

from pathlib import Path

import pytest

from supercluster.broker.auth.link_credentials import Login
from supercluster.broker.dropin import main
from supercluster.broker.dropin.conf import ConfError, parse
from supercluster.broker.dropin.credentials import DropInCredentials
from supercluster.broker.dropin.options import Options, read
from supercluster.broker.dropin.process_settings import place_of, settings_of
from supercluster.broker.settings.settings import GatewayTls, Settings

LIST = """[
  {name: B, urls: ["nats://g:p%40ss@b1:1", "nats://g:p%40ss@[::1]"]}
  {name: A, url: "nats://a:2"}
  {name: C, url: "nats://c"}
]"""


def options(text: str) -> Options:
    return read(parse(text, "a.conf", read=lambda file, name: (name, ""), environment={}))


def settings(text: str) -> Settings:
    return settings_of(options(text), "s")


def test_a_block_says_where_other_clusters_are() -> None:
    found = options(
        f'gateway {{ name: B, listen: "127.0.0.1:-1", advertise: "h:7", reject_unknown: true, gateways: {LIST} }}'
    )
    assert found.cluster_name == "B"
    assert (found.gateway.host, found.gateway.port, found.gateway.advertise) == ("127.0.0.1", -1, "h:7")
    assert found.warnings == ()
    told = settings_of(found, "s")
    assert told.gateways == {"A": ("a:2",), "C": ("c:7222",)}
    assert told.cluster == "B"
    assert told.meta_voters == ()


def test_all_that_name_the_same_clusters_belong_together_and_their_data_to_the_first() -> None:
    one = settings(
        "gateway { name: B, port: 1, gateways: [{name: C, url: 'nats://c'}, {name: A, url: 'nats://a'}] }"
    )
    other = settings(f"gateway {{ name: A, port: 1, gateways: {LIST} }}")
    less = settings("gateway { name: B, port: 1, gateways: [{name: A, url: 'nats://a'}] }")
    assert one.identity == other.identity == "clusters A, B, C"
    assert less.identity == "clusters A, B"
    assert settings("").identity == "nats"

    def volume(text: str) -> str:
        return place_of(options(text), "s", Path("d"), Path("c")).volume_identity

    assert volume("gateway { name: B, port: 1, gateways: [{name: A, url: 'nats://a'}] }") == "clusters-from-A"
    assert volume("gateway { name: B, port: 1, gateways: [{name: C, url: 'nats://a'}] }") == "clusters-from-B"
    assert volume("") == ""


def test_a_cluster_of_one_server_needs_no_port_for_its_own() -> None:
    place = place_of(options("gateway { name: A, listen: '127.0.0.1:7222' }"), "s", Path("d"), Path("c"))
    assert (place.is_alone, place.has_cluster_port, place.routes) == (False, False, ())
    assert (place.gateway_host, place.gateway_advertise) == ("127.0.0.1", "127.0.0.1")
    place = place_of(
        options("cluster { port: 6222 }\ngateway { name: A, listen: '[::1]:7222' }"),
        "s",
        Path("d"),
        Path("c"),
    )
    assert (place.has_cluster_port, place.gateway_advertise) == (True, "[::1]")


def test_links_have_credentials_and_tls() -> None:
    text = f"""
    authorization {{ user: u, password: p }}
    gateway {{
      name: A, port: 1, gateways: {LIST}
      authorization {{ user: w, password: x, timeout: 2 }}
      tls {{ cert_file: c, key_file: k, ca_file: a }}
    }}
    """
    found = DropInCredentials(options(text)).gateways
    assert (found.accept, found.send) == ((Login("w", "x"),), Login("g", "p@ss"))
    assert settings(text).gateway_tls == GatewayTls(Path("c"), Path("k"), Path("a"))
    assert options(text).warnings == ("a.conf:9:45: gateway.authorization.timeout has no effect here",)


def test_a_port_without_a_secret_is_open_and_that_is_said_where_clients_have_one() -> None:
    found = options(
        f"authorization {{ user: u, password: p }}\ngateway {{ name: A, port: 1, gateways: {LIST.replace('g:p%40ss@', '')} }}"
    )
    assert DropInCredentials(found).gateways.accepts("", "")
    assert found.warnings == (
        "a.conf:2:1: gateway has neither authorization nor tls: every program that reaches its port is let in as a server",
    )


def test_what_only_looks_different_is_named() -> None:
    found = options(
        f"gateway {{ name: A, port: 1, gateways: {LIST}\n connect_retries: 3\n write_deadline: 2s\n reject_unknown_cluster: false }}"
    )
    assert found.warnings == (
        "a.conf:1:1: gateway.reject_unknown_cluster has no effect here: clusters that are not named are always refused",
        "a.conf:6:2: gateway.connect_retries has no effect here",
        "a.conf:7:2: gateway.write_deadline has no effect here",
    )
    assert "names no other cluster" in options("gateway { name: A, port: 1 }").warnings[0]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gateway { port: 1 }", r"a\.conf:1:1: gateway needs name"),
        ("gateway { name: A }", r"a\.conf:1:1: gateway needs a port of its own"),
        ("gateway { name: A.B\n port: 1 }", r"a\.conf:1:11: gateway\.name has to be 1 to 63 bytes"),
        ("gateway { name: A\n listen: x }", r"a\.conf:2:2: gateway\.listen has to be host:port"),
        (
            "gateway { name: A, port: 1\n advertise: h }",
            r"a\.conf:2:2: gateway\.advertise has to be host:port",
        ),
        ("gateway { name: A, port: 1\n foo: 1 }", r'a\.conf:2:2: unknown field "gateway\.foo"'),
        (
            "gateway { name: A, port: 1\n authorization { users: [] } }",
            r"a\.conf:2:18: gateway\.authorization\.users",
        ),
        ("gateway { name: A, port: 1\n tls { cert_file: c } }", r"a\.conf:2:2: gateway\.tls needs key_file"),
        (
            "gateway { name: A, port: 1, gateways: [\n{name: B}] }",
            r"a\.conf:2:1: gateway\.gateways: B needs url",
        ),
        ("gateway { name: A, port: 1, gateways: [\n{url: 'nats://b'}] }", r"a\.conf:2:1: .* needs name"),
        (
            "gateway { name: A, port: 1, gateways: [\n{name: B, url: 'u:hush@x'}] }",
            r"a\.conf:2:11: a gateway's address has to be a URL",
        ),
        (
            "gateway { name: A, port: 1, gateways: [\n{name: B, url: 'nats://b', foo: 1}] }",
            r'a\.conf:2:28: unknown field "gateway\.gateways\.foo"',
        ),
        (
            "gateway { name: A, port: 1, gateways: [\n{name: B, url: 'nats://b', tls {}}] }",
            r"a\.conf:2:28: gateway\.gateways\.tls: one tls serves",
        ),
        (
            "gateway { name: A, port: 1, gateways: [{name: B, url: 'nats://b'}\n{name: B, url: 'nats://c'}] }",
            r"a\.conf:2:1: gateway\.gateways names cluster 'B' twice",
        ),
        (
            "gateway { name: A, port: 1, gateways: [{name: B, urls: ['nats://a:hush@b', 'nats://c:hush@b']}] }",
            r"a\.conf:1:1: gateway\.gateways: all URLs have to name one user",
        ),
        (
            "cluster { name: B, port: 1 }\ngateway { name: A, port: 1 }",
            r"a\.conf:2:1: gateway\.name is 'A' and cluster",
        ),
        ("gateways { name: A }", r'a\.conf:1:1: unknown field "gateways"'),
    ],
)
def test_errors_say_where_and_why_without_passwords(text: str, why: str) -> None:
    with pytest.raises(ConfError, match=f"^{why}") as found:
        options(text)
    assert "hush" not in str(found.value)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-js"], "streams in a cluster need server_name"),
        (["--name", "a%b"], "server_name is 'a%b'; % is not allowed in it"),
        (["--cluster_name", "B"], "gateway.name is 'A' and --cluster_name 'B'"),
    ],
)
def test_names_of_flags_and_file_have_to_fit(
    words: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.conf"
    file.write_text("gateway { name: A, port: 7222 }")
    assert main.main([*words, "-c", str(file), "-t"]) == 1
    assert why in capsys.readouterr().err
