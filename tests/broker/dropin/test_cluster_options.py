"""The other servers of a cluster, as nats-server's configuration and flags name them."""

from __future__ import annotations

from pathlib import Path

import pytest

from supercluster.broker.auth.link_credentials import Login
from supercluster.broker.dropin import flags, main
from supercluster.broker.dropin.addresses import Remote
from supercluster.broker.dropin.cluster_options import ClusterOption
from supercluster.broker.dropin.conf import ConfError, parse
from supercluster.broker.dropin.credentials import links_of
from supercluster.broker.dropin.flags import FlagError
from supercluster.broker.dropin.options import Options, read
from supercluster.broker.dropin.process_settings import settings_of
from supercluster.broker.settings.settings import GatewayTls

ROUTES = 'routes: ["nats-route://r:p%40ss@a:1", "nats://r:p%40ss@[::1]:2", "nats-route://r:p%40ss@c"]'


def options(text: str) -> Options:
    return read(parse(text, "a.conf", read=lambda file, name: (name, ""), environment={}))


def test_a_block_says_where_the_others_are() -> None:
    found = options(f'cluster {{ name: C, listen: "127.0.0.1:6222", {ROUTES} }}')
    assert found.cluster_name == "C"
    assert (found.cluster.host, found.cluster.port) == ("127.0.0.1", 6222)
    assert [route.address for route in found.cluster.routes] == ["a:1", "[::1]:2", "c:6222"]
    assert {(route.user, route.password) for route in found.cluster.routes} == {("r", "p@ss")}
    assert found.warnings == ()


def test_what_only_looks_different_is_named() -> None:
    found = options("cluster { port: 6222\n pool_size: 3\n compression: s2_fast }")
    assert (found.cluster.host, found.cluster.port) == ("0.0.0.0", 6222)
    assert found.warnings == (
        "a.conf:2:2: cluster.pool_size has no effect here",
        "a.conf:3:2: cluster.compression has no effect here",
    )


def test_links_have_their_credentials() -> None:
    found = links_of(options("cluster { port: 1, authorization { user: u, password: p } }"))
    assert (found.accept, found.send) == ((Login("u", "p"),), Login("u", "p"))
    found = links_of(options(f"cluster {{ port: 1, authorization {{ user: u, password: p }}, {ROUTES} }}"))
    assert (found.accept, found.send) == ((Login("u", "p"),), Login("r", "p@ss"))
    assert links_of(options("cluster { port: 1 }")).accepts("", "")


def test_links_have_tls_of_both_sides() -> None:
    found = options('cluster { port: 1, tls { cert_file: "c", key_file: "k", ca_file: "a", verify: true } }')
    assert found.cluster.tls == GatewayTls(Path("c"), Path("k"), Path("a"))
    assert settings_of(found, "n").cluster_tls == found.cluster.tls


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "cluster { listen: x }",
            r"a\.conf:1:11: cluster\.listen has to be host:port or a port from -1 to 65535, not 'x'",
        ),
        ("cluster { port: 1\n name: a.b }", r"a\.conf:2:2: cluster\.name has to be 1 to 63 bytes"),
        ("cluster { port: 1\n routes: [\n x ] }", r"a\.conf:3:2: a route has to be a URL"),
        ("cluster { port: 1\n routes: ['http://u:hush@x'] }", r"a\.conf:2:11: a route has to be a URL"),
        ("cluster { port: 1\n routes: ['nats://u:hush@h:99999'] }", r"a\.conf:2:11: a route has to be a URL"),
        ("cluster { routes: ['nats://h:1'] }", r"a\.conf:1:1: cluster: routes need a port of its own"),
        ("cluster { port: 1, routes: ['nats://a:hush@h', 'nats://b:hush@h'] }", r"a\.conf:1:1: .* one user"),
        ("cluster { port: 1, routes: 'nats://h' }", r"a\.conf:1:20: cluster\.routes has to be a list"),
        (
            "cluster { port: 1\n permissions { import: a } }",
            r"a\.conf:2:2: cluster\.permissions: what crosses",
        ),
        (
            "cluster { port: 1\n authorization { users: [] } }",
            r"a\.conf:2:18: cluster\.authorization\.users: ",
        ),
        (
            "cluster { port: 1\n authorization { user: u } }",
            r"a\.conf:2:2: cluster\.authorization needs user and",
        ),
        ("cluster { port: 1\n tls { cert_file: c } }", r"a\.conf:2:2: cluster\.tls needs key_file"),
        ("cluster { port: 1\n prot: 2 }", r'a\.conf:2:2: unknown field "cluster\.prot"'),
    ],
)
def test_errors_say_where_and_why_without_passwords(text: str, why: str) -> None:
    with pytest.raises(ConfError, match=f"^{why}") as found:
        options(text)
    assert "hush" not in str(found.value)


def flagged(*words: str, text: str = "") -> ClusterOption:
    return flags.applied(flags.parse(words), options(text)).cluster


def test_flags_go_before_the_file() -> None:
    found = flagged("--cluster_listen", "nats://127.0.0.1:6222", "--routes", "nats://a:1,nats-route://b:2")
    assert (found.host, found.port) == ("127.0.0.1", 6222)
    assert found.routes == (Remote("a:1"), Remote("b:2"))
    found = flagged(
        "--cluster", "nats://u:p@0.0.0.0:-1", "--routes=nats://a", text=f"cluster {{port: 7, {ROUTES}}}"
    )
    assert (found.host, found.port, found.user, found.password) == ("0.0.0.0", -1, "u", "p")
    assert found.routes == (Remote("a:6222"),)
    assert flagged("--cluster_listen", "127.0.0.1:5").port == 5


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--routes", "nats://a"), "--routes needs a port for the cluster"),
        (("--cluster_listen", "x"), "--cluster_listen has to be host:port"),
        (("--cluster_listen", "http://u:hush@a:1"), "--cluster_listen has to be host:port"),
        (
            ("--cluster_listen", "nats://a:1", "--routes", "nats://a,u:hush@b"),
            "--routes has to be a list of URLs",
        ),
    ],
)
def test_flags_that_can_not_be_used_are_named_without_passwords(words: tuple[str, ...], why: str) -> None:
    with pytest.raises(FlagError, match=why) as found:
        flagged(*words)
    assert "hush" not in str(found.value)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["-js", "--cluster_listen", "127.0.0.1:5", "--cluster_name", "C"], "server_name"),
        (["-js", "--cluster_listen", "127.0.0.1:5", "-n", "s"], r"cluster\.name"),
    ],
)
def test_streams_in_a_cluster_need_names(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(words) == 1
    assert f"streams in a cluster need {why.replace(chr(92), '')}" in capsys.readouterr().err
