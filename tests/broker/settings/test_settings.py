"""Settings: what is right is read, and what is wrong is named with its field, value and remedy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supercluster.broker.settings import settings
from supercluster.broker.settings.settings import SettingsError

MINIMAL: dict[str, Any] = {
    "superCluster": "demo",
    "identity": "id-1",
    "cluster": "east",
    "peers": {"east-0": "east-0.svc:6222"},
    "metaVoters": ["east-0"],
}


def test_the_required_fields_are_enough() -> None:
    found = settings.parse(MINIMAL)
    assert found.ports == settings.Ports(client=4222, cluster=6222, monitor=8222, gateway=7222)
    assert found.limits.window_wait_ms == 10_000
    assert found.meta_voters == ("east-0",)
    assert (found.gateways, found.gateway_tls, found.tags, found.link_faults) == (None, None, (), False)


def test_every_documented_field_is_taken() -> None:
    found = settings.parse(
        {
            **MINIMAL,
            "ports": {"client": 0, "cluster": 1, "monitor": 2},
            "limits": {
                "maxPayloadBytes": 1000,
                "maxControlLineBytes": 1024,
                "maxConnections": 5,
                "maxPendingBytes": 70000,
                "pingIntervalMs": 1000,
                "pingsOutMax": 3,
                "authTimeoutMs": 100,
                "windowBytesPerStream": 100_000,
                "windowWaitMs": 200,
            },
            "storage": {
                "maxFileBytes": 1,
                "maxMemoryBytes": 2,
                "syncIntervalMs": 3,
                "syncAlways": True,
                "segmentBytes": 70000,
                "retiredGraceMs": 5000,
            },
            "raft": {"heartbeatMs": 50, "electionTimeoutMs": 100},
            "gateways": {"west": ["w-0:7222", "w-0:7222", "[::1]:1"], "north": []},
            "gatewayTls": {"certFile": "/c", "keyFile": "/k", "caFile": "/a", "serverName": "gateways"},
            "tags": ["ssd", "zone:a", "ssd"],
            "linkFaults": True,
        }
    )
    assert (found.ports.client, found.limits.max_connections, found.storage.segment_bytes) == (0, 5, 70000)
    assert (found.storage.retired_grace_ms, found.storage.sync_always) == (5000, True)
    assert found.raft == settings.Raft(50, 100)
    assert found.gateways == {"west": ("w-0:7222", "[::1]:1"), "north": ()}
    assert found.gateway_tls == settings.GatewayTls(Path("/c"), Path("/k"), Path("/a"), "gateways")
    assert (found.tags, found.link_faults) == (("ssd", "zone:a"), True)


PAIR = {"certFile": "/c", "keyFile": "/k"}


def test_tls_for_clients_is_read_with_its_defaults() -> None:
    found = settings.parse({**MINIMAL, "clientTls": {**PAIR, "verifyAndMap": True, "firstWaitMs": 50}})
    assert found.client_tls == settings.ClientTls(
        Path("/c"), Path("/k"), verify_and_map=True, first_wait_ms=50
    )
    assert found.client_tls.asks_certificate
    assert (found.websocket_tls, found.client_tls.timeout_ms) == (None, 2000)


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"cluster": None}, ["cluster is null", "1 to 63"]),
        ({"cluster": "a b"}, ["cluster", "a b", "not allowed"]),
        ({"peers": {"east%0": "host:1"}}, ["peers: name", "east%0", "% are not allowed"]),
        ({"ports": {"migration": -2}}, ["ports.migration is -2", "from -1 to 65535"]),
        ({"migrationTls": {"certFile": "c"}}, ["migrationTls.keyFile is missing"]),
        ({"identity": ""}, ["identity"]),
        ({"peers": []}, ["peers is []", "object"]),
        ({"peers": {"east-0": "nowhere"}}, ["peers.east-0", '"nowhere"', "host:port"]),
        ({"peers": {"east-0": "host:99999"}}, ["peers.east-0", "host:port"]),
        ({"metaVoters": []}, ["metaVoters is []", "at least one"]),
        ({"metaVoters": ["a", "a"]}, ["metaVoters", "once"]),
        ({"limit": {}}, ["limit is no known field", "limits"]),
        ({"limits": {"maxPayload": 1}}, ["limits.maxPayload is no known field", "maxPayloadBytes"]),
        ({"limits": {"maxPayloadBytes": "1"}}, ['limits.maxPayloadBytes is "1"', "whole number from 1"]),
        ({"limits": {"pingsOutMax": True}}, ["limits.pingsOutMax is true"]),
        ({"limits": {"pingIntervalMs": 1}}, ["limits.pingIntervalMs is 1", "from 100 to"]),
        ({"ports": {"client": 70000}}, ["ports.client is 70000", "0 to 65535"]),
        ({"storage": {"segmentBytes": 2**31 + 1}}, ["storage.segmentBytes", "to 2147483648"]),  # D13
        ({"gateways": []}, ["gateways is []", "object"]),
        ({"gateways": {"a b": []}}, ["gateways", "a b", "not allowed"]),
        ({"gateways": {"west": "w:7222"}}, ['gateways.west is "w:7222"', "list of host:port"]),
        ({"gateways": {"west": ["w:7222", "w"]}}, ["gateways.west[1]", '"w"', "host:port"]),
        ({"gateways": {"west": [f"w:{n}" for n in range(1, 258)]}}, ["257 addresses", "at most 256"]),
        ({"gatewayTls": 1}, ["gatewayTls is 1", "object"]),
        ({"gatewayTls": {"certFile": "a"}}, ["gatewayTls.keyFile is missing"]),
        (
            {"gatewayTls": {"certFile": "c", "keyFile": "k", "caFile": "a", "plain": "perhaps"}},
            ['gatewayTls.plain is "perhaps"', "refused, accepted, dialled"],
        ),
        ({"gatewayTls": {"cert": "a"}}, ["gatewayTls.cert is no known field", "certFile"]),
        (
            {"gatewayTls": {"certFile": "", "keyFile": "k", "caFile": "a"}},
            ['gatewayTls.certFile is ""', "not empty"],
        ),
        ({"clientTls": []}, ["clientTls is []", "object"]),
        ({"clientTls": {"keyFile": "k"}}, ["clientTls.certFile is missing"]),
        ({"websocketTls": {"certFile": "c", "keyFile": 5}}, ["websocketTls.keyFile is 5", "not empty"]),
        ({"clientTls": {**PAIR, "verify": "yes"}}, ['clientTls.verify is "yes"', "true or false"]),
        ({"clientTls": {**PAIR, "timeoutMs": 1}}, ["clientTls.timeoutMs is 1", "from 50 to 60000"]),
        ({"clientTls": {**PAIR, "minVersion": "1.1"}}, ['clientTls.minVersion is "1.1"', "1.2, 1.3"]),
        ({"clientTls": {**PAIR, "cert": "a"}}, ["clientTls.cert is no known field", "certFile"]),
        ({"tags": "ssd"}, ['tags is "ssd"', "list"]),
        ({"tags": ["ssd", 1]}, ["tags[1] is 1", "1 to 63 bytes"]),
        ({"linkFaults": 1}, ["linkFaults is 1", "true or false"]),
        ({"storage": {"syncAlways": 1}}, ["storage.syncAlways is 1", "true or false"]),
        ({"raft": {"heartbeatMs": 400}}, ["raft.electionTimeoutMs is 500", "raft.heartbeatMs (400)"]),
    ],
)
def test_errors_name_field_value_and_remedy(change: dict[str, Any], parts: list[str]) -> None:
    with pytest.raises(SettingsError) as found:
        settings.parse({**MINIMAL, **change})
    for part in parts:
        assert part in str(found.value)


@pytest.mark.parametrize("name", sorted(MINIMAL))
def test_each_required_field_is_missed_by_name(name: str) -> None:
    document = {key: value for key, value in MINIMAL.items() if key != name}
    with pytest.raises(SettingsError, match=f"{name} is missing"):
        settings.parse(document)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    broken = tmp_path / "broker.json"
    with pytest.raises(SettingsError, match=r"broker\.json can't be read"):
        settings.load(broken)
    broken.write_text("{")
    with pytest.raises(SettingsError, match=r"broker\.json is no JSON"):
        settings.load(broken)
    broken.write_text("[]")
    with pytest.raises(SettingsError, match=r"broker\.json: is \[\]"):
        settings.load(broken)
    broken.write_text(json.dumps(MINIMAL))
    assert settings.load(broken) == settings.parse(MINIMAL)
