"""A broker's settings: one JSON file, written by the operator, validated here completely.

Every error names the field, the value and the valid values. Unknown fields are errors, so that a misspelt
limit is not a silent default. The classes are plain dataclasses, which keeps the broker small.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from supercluster.broker.bounds import (
    BROKER_NAME_BYTES_MAX,
    MESSAGE_BYTES_MAX,
    TEXT_BYTES_MAX,
    U16_MAX,
    read_json,
)
from supercluster.broker.jetstream.config.limits import NO_SERVER_LIMITS, ServerLimits

TAGS_MAX = 32
SEEDS_MAX = 256
"""Addresses in `gateways` altogether: each is a task that asks who is there."""

T = TypeVar("T")


class SettingsError(Exception):
    """The settings can't be used; the text names the field."""


def _bounded(default: int, low: int, high: int) -> Any:
    return field(default=default, metadata={"low": low, "high": high})


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports; 0 lets the kernel choose."""

    client: int = _bounded(4222, 0, U16_MAX)
    cluster: int = _bounded(6222, 0, U16_MAX)
    monitor: int = _bounded(8222, 0, U16_MAX)
    gateway: int = _bounded(7222, 0, U16_MAX)
    """For brokers of other clusters; open only when the settings have `gateways`."""
    migration: int = _bounded(-1, -1, U16_MAX)
    """For brokers of another super-cluster that hands its streams to this one; -1: not open."""
    websocket: int = _bounded(-1, -1, U16_MAX)
    """For clients that come by WebSocket; without `websocketTls` TLS is a proxy's affair. -1: not open."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What clients may do, and for how long things may take."""

    max_payload_bytes: int = _bounded(1 << 20, 1, MESSAGE_BYTES_MAX)
    max_control_line_bytes: int = _bounded(4096, 512, TEXT_BYTES_MAX)
    max_connections: int = _bounded(65536, 1, 1 << 20)
    max_subscriptions: int = _bounded(100_000, 1, 10_000_000)
    """Of one connection."""
    max_subscription_tokens: int = _bounded(0, 0, 255)
    """Of a subscription's subject; 0: as many as fit."""
    max_pending_bytes: int = _bounded(64 << 20, 64 << 10, 1 << 30)
    """Unsent bytes at which a client is a slow consumer."""
    write_deadline_ms: int = _bounded(0, 0, 600_000)
    """How long a client may take to accept what it was sent before it is one, however little that is; 0: as long as it likes."""
    ping_interval_ms: int = _bounded(120_000, 100, 3_600_000)
    pings_out_max: int = _bounded(2, 1, 100)
    auth_timeout_ms: int = _bounded(2000, 50, 60_000)
    window_bytes_per_stream: int = _bounded(8 << 20, 64 << 10, 1 << 30)
    window_wait_ms: int = _bounded(10_000, 100, 600_000)
    """How long a publish waits for room in its stream's window before it is refused (SF-15)."""
    drain_ms: int = _bounded(10_000, 0, 600_000)
    """How long a lame duck waits for its clients' FIN and for its windows to empty (SF-16), once all were sent FIN."""
    lame_duck_grace_ms: int = _bounded(100, 0, 600_000)
    """How long clients that were told of a lame duck may go by themselves before the first is sent FIN."""
    lame_duck_duration_ms: int = _bounded(200, 0, 3_600_000)
    """The grace period, and the time over which the FINs are spread."""


@dataclass(frozen=True, slots=True)
class Storage:
    """Limits of the data directory; 0 bytes: what the volume has."""

    max_file_bytes: int = _bounded(0, 0, 1 << 60)
    max_memory_bytes: int = _bounded(0, 0, 1 << 50)
    sync_interval_ms: int = _bounded(1000, 1, 600_000)
    sync_always: bool = False
    """fsync before it counts whatever is written here, but for streams whose own policy is `never`."""
    segment_bytes: int = _bounded(64 << 20, 64 << 10, 1 << 31)
    retired_grace_ms: int = _bounded(600_000, 0, 30 * 86_400_000)
    """How long the copy of a stream that moved away is kept, closed (SF-5)."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What applies to moves that a client starts by JetStream's own API, which has no field for it."""

    bytes_per_s: int = _bounded(0, 0, 1 << 50)
    """How fast all new copies of one such move may be made together; 0: no limit."""


@dataclass(frozen=True, slots=True)
class Bulk:
    """The bulk port, which sends messages as Arrow columns."""

    port: int = _bounded(-1, -1, U16_MAX)
    """-1: not open."""
    quota_bytes: int = _bounded(1 << 30, 32 << 20, 1 << 50)
    """Of the columns' files."""
    readers_max: int = _bounded(16, 1, 1024)
    """Requests that are answered at the same time."""


@dataclass(frozen=True, slots=True)
class Raft:
    """Timing of the Raft groups."""

    heartbeat_ms: int = _bounded(100, 10, 10_000)
    election_timeout_ms: int = _bounded(500, 50, 60_000)


@dataclass(frozen=True, slots=True)
class GatewayTls:
    """Links over TLS: both sides show a certificate, and both have to be signed by `ca_file`."""

    cert_file: Path
    key_file: Path
    ca_file: Path
    server_name: str = ""
    """When set, the certificate of a broker that is dialled has to be for this name too."""
    plain: str = "refused"
    """Of `PLAIN`: links without TLS, while it is turned on or off. One that is dialled with TLS is never dialled in plain because
    TLS failed."""


PLAIN = ("refused", "accepted", "dialled")
"""`dialled` accepts them too."""
TLS_VERSIONS = ("1.2", "1.3")


@dataclass(frozen=True, slots=True)
class ClientTls:
    """TLS on a port for clients."""

    cert_file: Path
    key_file: Path
    ca_file: Path | None = None
    """Signs clients' certificates; None: the authorities that the system trusts."""
    verify: bool = False
    """Does a client have to show a certificate?"""
    verify_and_map: bool = False
    """`verify`, and the certificate says which user the client is."""
    handshake_first: bool = False
    """Is INFO sent only inside of TLS? Else it comes first, in plain, as all clients know it."""
    first_wait_ms: int = _bounded(0, 0, 60_000)
    """With `handshake_first`: for so long a client may be silent before it is sent INFO in plain after all; 0: it is not."""
    allow_plain: bool = False
    """May a client go on without TLS?"""
    timeout_ms: int = _bounded(2000, 50, 60_000)
    """Of the handshake."""
    min_version: str = "1.2"
    ciphers: str = ""
    """Of TLS 1.2, as OpenSSL names them; empty: its usual ones."""

    @property
    def asks_certificate(self) -> bool:
        return self.verify or self.verify_and_map


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole file."""

    super_cluster: str
    identity: str
    """Identity of the super-cluster: brokers of another one are refused."""
    cluster: str
    peers: Mapping[str, str]
    """Broker → host:port of its cluster port."""
    meta_voters: tuple[str, ...]
    ports: Ports = Ports()
    limits: Limits = Limits()
    storage: Storage = Storage()
    raft: Raft = Raft()
    moves: Moves = Moves()
    bulk: Bulk = Bulk()
    jetstream: ServerLimits = NO_SERVER_LIMITS
    gateways: Mapping[str, tuple[str, ...]] | None = None
    """Other cluster → host:port of some gateway ports there, to begin with; None: no gateway port is opened."""
    cluster_tls: GatewayTls | None = None
    """Of the links inside the cluster, in the same way as `gateway_tls`."""
    gateway_tls: GatewayTls | None = None
    migration_tls: GatewayTls | None = None
    """Of the links with another super-cluster, whichever side dials, in the same way as `gateway_tls`."""
    client_tls: ClientTls | None = None
    websocket_tls: ClientTls | None = None
    monitor_tls: ClientTls | None = None
    """Of the monitoring port; probes are answered without it too."""
    tags: tuple[str, ...] = ()
    """What placements may ask for, as in "ssd"."""
    domain: str = ""
    """JetStream's API is asked as `$JS.<domain>.API` as well; empty: there is no domain."""
    link_faults: bool = False
    """Tests only: `/admin/faults` may cut this broker's links."""
    join_only: bool = False
    """The super-cluster's map of streams was begun before: this broker begins none, whatever its volume holds."""


_SECTIONS: dict[str, type[Any]] = {
    "ports": Ports,
    "limits": Limits,
    "storage": Storage,
    "raft": Raft,
    "moves": Moves,
    "bulk": Bulk,
    "jetstream": ServerLimits,
}
_VALUES = {"min_version": TLS_VERSIONS, "plain": PLAIN}
_OF_LINKS = (GatewayTls, "certFile", "keyFile", "caFile")
_OF_CLIENTS = (ClientTls, "certFile", "keyFile")
_TLS: dict[str, tuple[Any, ...]] = {
    "cluster_tls": _OF_LINKS,
    "gateway_tls": _OF_LINKS,
    "migration_tls": _OF_LINKS,
    "client_tls": _OF_CLIENTS,
    "websocket_tls": _OF_CLIENTS,
    "monitor_tls": _OF_CLIENTS,
}
"""Each with the fields that it needs."""


def load(path: Path) -> Settings:
    """Read and check a settings file.

    Raises:
        SettingsError: it can't be read or used.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"settings file {path} can't be read: {error}") from error
    return read(path, text)


def read(path: Path, text: str) -> Settings:
    """Check the text of a settings file.

    Raises:
        SettingsError: it can't be used.
    """
    try:
        return parse(read_json(text))
    except ValueError as error:
        raise SettingsError(f"settings file {path} is no JSON: {error}") from error
    except SettingsError as error:
        raise SettingsError(f"settings file {path}: {error}") from None


def parse(document: object) -> Settings:
    """Check a decoded document.

    Raises:
        SettingsError: a field is missing, unknown, or has a value that can't be used.
    """
    if not isinstance(document, dict):
        raise SettingsError(f"is {_shown(document)}; it has to be a JSON object")
    allowed = {camel(item.name) for item in fields(Settings)}
    _refuse_unknown("", document, allowed)
    for name in ("superCluster", "identity", "cluster", "peers", "metaVoters"):
        if name not in document:
            raise SettingsError(
                f"{name} is missing; superCluster, identity, cluster, peers and metaVoters are required"
            )
    peers = _peers(document["peers"])
    voters = document["metaVoters"]
    if (
        not isinstance(voters, list)
        or not voters
        or not all(isinstance(voter, str) and voter for voter in voters)
    ):
        raise SettingsError(
            f"metaVoters is {_shown(voters)}; it has to be a list of at least one broker's name"
        )
    if len(set(voters)) != len(voters):
        raise SettingsError(f"metaVoters is {_shown(voters)}; every broker may be named once")
    sections = {name: _section(name, kind, document.get(name, {})) for name, kind in _SECTIONS.items()}
    if sections["raft"].election_timeout_ms < 2 * sections["raft"].heartbeat_ms:
        raise SettingsError(
            f"raft.electionTimeoutMs is {sections['raft'].election_timeout_ms}; "
            f"it has to be at least twice raft.heartbeatMs ({sections['raft'].heartbeat_ms})"
        )
    link_faults = _truth("linkFaults", document.get("linkFaults", False))
    tls: dict[str, Any] = {
        name: _section(camel(name), kind, document[camel(name)], *required)
        for name, (kind, *required) in _TLS.items()
        if camel(name) in document
    }
    return Settings(
        super_cluster=check_name("superCluster", document["superCluster"]),
        identity=check_name("identity", document["identity"]),
        cluster=check_name("cluster", document["cluster"]),
        peers=peers,
        meta_voters=tuple(voters),
        gateways=_gateways(document["gateways"]) if "gateways" in document else None,
        **tls,
        tags=_tags(document.get("tags", [])),
        link_faults=link_faults,
        join_only=_truth("joinOnly", document.get("joinOnly", False)),
        domain=check_name("domain", document["domain"]) if document.get("domain") else "",
        **sections,
    )


def split_address(name: str, address: object) -> tuple[str, int]:
    """host:port, or an error that names the field."""
    if isinstance(address, str):
        host, colon, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if colon and host and port.isdigit() and 0 < int(port) <= U16_MAX:
            return host, int(port)
    raise SettingsError(
        f"{name} is {_shown(address)}; it has to be host:port, as in east-0.east-brokers.ns.svc:6222"
    )


def _peers(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise SettingsError(f"peers is {_shown(value)}; it has to be an object of broker names and addresses")
    for node, address in value.items():
        check_name(f"peers: name {node!r}", node)
        split_address(f"peers.{node}", address)
    return dict(value)


def _gateways(value: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise SettingsError(
            f"gateways is {_shown(value)}; it has to be an object of cluster names and lists of addresses"
        )
    for cluster, addresses in value.items():
        check_name(f"gateways: name {cluster!r}", cluster)
        if not isinstance(addresses, list):
            raise SettingsError(
                f"gateways.{cluster} is {_shown(addresses)}; it has to be a list of host:port"
            )
        for index, address in enumerate(addresses):
            split_address(f"gateways.{cluster}[{index}]", address)
    if sum(map(len, value.values())) > SEEDS_MAX:
        raise SettingsError(
            f"gateways has {sum(map(len, value.values()))} addresses; at most {SEEDS_MAX} are allowed"
        )
    return {cluster: tuple(dict.fromkeys(addresses)) for cluster, addresses in value.items()}


def _field(name: str, item: Field[Any], value: object) -> Any:
    if "low" in item.metadata:
        return _whole(name, value, item.metadata["low"], item.metadata["high"])
    if type(item.default) is bool:
        return _truth(name, value)
    if not isinstance(value, str) or not value:
        raise SettingsError(f"{name} is {_shown(value)}; it has to be a text that is not empty")
    if (among := _VALUES.get(item.name)) and value not in among:
        raise SettingsError(f"{name} is {_shown(value)}; it has to be one of {', '.join(among)}")
    return Path(value) if item.name.endswith("_file") else value


def _tags(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > TAGS_MAX:
        raise SettingsError(f"tags is {_shown(value)}; it has to be a list of at most {TAGS_MAX} texts")
    for index, tag in enumerate(value):
        _short_text(f"tags[{index}]", tag)
    return tuple(dict.fromkeys(value))


def _section(name: str, kind: type[T], value: object, *required: str) -> T:
    if not isinstance(value, dict):
        raise SettingsError(f"{name} is {_shown(value)}; it has to be an object")
    items = {camel(item.name): item for item in fields(kind)}  # type: ignore[arg-type]
    _refuse_unknown(f"{name}.", value, set(items))
    for key in required:
        if key not in value:
            *some, last = required
            raise SettingsError(f"{name}.{key} is missing; {', '.join(some)} and {last} are required")
    return kind(**{items[key].name: _field(f"{name}.{key}", items[key], told) for key, told in value.items()})


def _truth(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{name} is {_shown(value)}; it has to be true or false")
    return value


def _whole(name: str, number: object, low: int, high: int) -> int:
    if type(number) is not int or not low <= number <= high:
        raise SettingsError(f"{name} is {_shown(number)}; it has to be a whole number from {low} to {high}")
    return number


def _refuse_unknown(prefix: str, document: Mapping[str, object], allowed: set[str]) -> None:
    for key in document:
        if key not in allowed:
            raise SettingsError(f"{prefix}{key} is no known field; known are {', '.join(sorted(allowed))}")


def check_name(field_name: str, value: object) -> str:
    """A broker's, cluster's or super-cluster's name, or an error that names the field."""
    text = _short_text(field_name, value)
    if any(sign in text for sign in " .*>@/\\%"):
        raise SettingsError(
            f"{field_name} is {_shown(value)}; spaces and . * > @ / \\ % are not allowed in it"
        )
    return text


def _short_text(name: str, value: object) -> str:
    if (
        not isinstance(value, str)
        or not 0 < len(value.encode()) <= BROKER_NAME_BYTES_MAX
        or not value.isprintable()
    ):
        raise SettingsError(
            f"{name} is {_shown(value)}; it has to be a text of 1 to {BROKER_NAME_BYTES_MAX} bytes"
        )
    return value


def camel(name: str) -> str:
    """A field's name as the file has it."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def _shown(value: object) -> str:
    text = json.dumps(value, default=repr)
    return text if len(text) <= 80 else text[:77] + "..."
