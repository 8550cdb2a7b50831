"""nats-server's configuration and flags, as far as this broker supports them.

An unsupported option that affects permissions or where messages are stored is refused. Any other unsupported
option is named in a warning. An option that nats-server does not know is an error. All three name the
position in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace

from supercluster.broker.auth.users import ClientLimits, User
from supercluster.broker.dropin.account_options import JetStreamLimits
from supercluster.broker.dropin.addresses import Address, read_address, read_listen, read_port
from supercluster.broker.dropin.cluster_options import ClusterOption, read_cluster
from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields
from supercluster.broker.dropin.gateway_options import GatewayOption, read_gateway
from supercluster.broker.dropin.jetstream_options import NO_JETSTREAM, JetStreamOption, read_jetstream_block
from supercluster.broker.dropin.tls_options import read_tls, read_web_rules, read_websocket, with_plain
from supercluster.broker.dropin.user_options import NO_JWT, SYSTEM_ACCOUNT, read_accounts, read_authorization
from supercluster.broker.protocol.imports import NO_ACCOUNTS, AccountBook
from supercluster.broker.protocol.websocket import NO_RULES, WebRules
from supercluster.broker.settings.settings import ClientTls, Limits

DEFAULT_PORT = 4222
CLIENTS = Address("0.0.0.0", DEFAULT_PORT)
CLOSED = Address()
"""No port at all."""

_USELESS = (
    *("logtime_utc", "syslog", "remote_syslog", "log_size_limit", "logfile_size_limit", "log_max_num"),
    *("logfile_max_num", "max_traced_msg_len", "trace", "trace_verbose", "trace_headers", "prof_port"),
    *("prof_block_rate", "write_timeout", "http_base_path", "feature_flags"),
    *("disable_sublist_cache", "max_closed_clients", "connect_error_reports", "reconnect_error_reports"),
    *("ping_interval_jitter", "no_fast_producer_stall", "proxies", "proxy_protocol"),
    *("no_system_account", "no_sys_acc", "metadata", "disable_jetstream_banner", "cors", "server_metadata"),
)

CONNECTIONS_MAX = 1 << 20
SUBSCRIPTIONS_MAX = 10_000_000

LIMITS = Limits(
    max_subscriptions=SUBSCRIPTIONS_MAX,
    write_deadline_ms=10_000,
    lame_duck_grace_ms=10_000,
    lame_duck_duration_ms=120_000,
)
"""nats-server's own defaults."""
_BOUNDED = {
    "max_payload": "max_payload_bytes",
    "max_control_line": "max_control_line_bytes",
    "max_pending": "max_pending_bytes",
    "ping_max": "pings_out_max",
}
"""Fields whose 0 means the usual one, with the bounds of the settings."""


@dataclass(frozen=True, slots=True)
class Options:
    """All of it."""

    server_name: str = ""
    listen: Address = CLIENTS
    monitor: Address = CLOSED
    has_monitor_tls: bool = False
    client_advertise: str = ""
    tls: ClientTls | None = None
    websocket: Address = CLOSED
    websocket_tls: ClientTls | None = None
    websocket_no_auth_user: str = ""
    """Empty: the same as on the other port."""
    web_rules: WebRules = NO_RULES
    cluster_name: str = ""
    cluster: ClusterOption = field(default_factory=ClusterOption)
    gateway: GatewayOption = field(default_factory=GatewayOption)
    jetstream: JetStreamOption = NO_JETSTREAM
    tags: tuple[str, ...] = ()
    limits: Limits = LIMITS
    has_headers: bool = True
    users: tuple[User, ...] = ()
    """Those of the system account have no role yet: a flag or a later field may name another."""
    account_limits: tuple[tuple[str, JetStreamLimits | None], ...] = ()
    """Per account that the file names; None: it has no JetStream."""
    client_limits: tuple[tuple[str, ClientLimits], ...] = ()
    """Of each account's clients."""
    accounts: AccountBook = NO_ACCOUNTS
    """What accounts import and export."""
    system_account: str = SYSTEM_ACCOUNT
    no_auth_user: str = ""
    debug: bool = False
    log_file: str = ""
    pid_file: str = ""
    ports_file_dir: str = ""
    warnings: tuple[str, ...] = ()
    """What has no effect here, each with its place."""

    @property
    def monitor_tls(self) -> ClientTls | None:
        """The certificate of the clients' port, without a look at those of who asks, as in nats-server; None: plain."""
        if not self.has_monitor_tls or self.tls is None:
            return None
        return replace(self.tls, ca_file=None, verify=False, verify_and_map=False, allow_plain=False)

    @property
    def is_linked(self) -> bool:
        """Are there other servers, of the own cluster or of others?"""
        return bool(self.cluster.port or self.gateway.name)


def read(tree: Value) -> Options:
    """The options of a file.

    Raises:
        ConfError: with the place of what is wrong, unknown or not carried out.
    """
    warnings: list[str] = []
    root = Fields(tree, "", warnings)
    base = Options()
    monitor, has_monitor_tls = _monitor(root)
    options = replace(
        base,
        server_name=root.name("server_name", "name"),
        listen=_listen(root, base.listen),
        monitor=monitor,
        has_monitor_tls=has_monitor_tls,
        client_advertise=root.text("client_advertise"),
        limits=_limits(root),
        has_headers=not root.boolean("no_header_support"),
        tags=root.texts("server_tags"),
        no_auth_user=root.text("no_auth_user"),
        system_account=root.text("system_account", "system", default=SYSTEM_ACCOUNT),
        debug=root.boolean("debug"),
        log_file=root.text("logfile", "log_file"),
        pid_file=root.text("pidfile", "pid_file"),
        ports_file_dir=root.text("ports_file_dir"),
    )
    options = _tls(root, options)
    jetstream = read_jetstream_block(root)
    users, auth_timeout_ms = read_authorization(root, options.limits.auth_timeout_ms)
    accounts = read_accounts(root, users, warnings)
    options = replace(
        options,
        jetstream=jetstream,
        limits=replace(options.limits, auth_timeout_ms=auth_timeout_ms),
        users=accounts.users,
        account_limits=accounts.limits,
        client_limits=accounts.client_limits,
        accounts=accounts.declared,
    )
    options = _cluster(root, options)
    options = _gateway(root, options, warnings)
    _refused(root)
    root.boolean("logtime", default=True)  # The log has it always.
    root.of_no_use(*_USELESS)
    root.done()
    for name in filter(None, (options.no_auth_user, options.websocket_no_auth_user)):
        if name not in (user.user for user in options.users):
            raise tree.wrong(f"no_auth_user {name!r} is none of the users")
    return replace(options, warnings=tuple(warnings))


# ---- where it listens -------------------------------------------------------------------------------------------------


def _limits(root: Fields) -> Limits:
    """Of connections and subscriptions 0 and less are as many as there may be."""
    bounds = {item.name: item.metadata for item in fields(Limits)}
    bounded = {
        name: root.bound(told, default=getattr(LIMITS, name), **bounds[name])
        for told, name in _BOUNDED.items()
    }
    connections = root.integer(
        "max_connections", "max_conn", default=LIMITS.max_connections, low=-(1 << 62), high=CONNECTIONS_MAX
    )
    subscriptions = root.integer("max_subscriptions", "max_subs", default=0, low=-1, high=SUBSCRIPTIONS_MAX)
    duration_ms = root.duration_ms(
        "lame_duck_duration", default=LIMITS.lame_duck_duration_ms, low=30_000, high=3_600_000
    )
    grace_ms = root.duration_ms("lame_duck_grace_period", default=LIMITS.lame_duck_grace_ms, high=600_000)
    if grace_ms >= duration_ms:
        raise root.value.wrong(
            f"lame_duck_grace_period ({grace_ms} ms) has to be shorter than lame_duck_duration ({duration_ms} ms)"
        )
    return replace(
        LIMITS,
        max_connections=connections if connections > 0 else CONNECTIONS_MAX,
        max_subscriptions=subscriptions if subscriptions > 0 else SUBSCRIPTIONS_MAX,
        max_subscription_tokens=root.integer("max_sub_tokens", default=0, high=255),
        write_deadline_ms=root.duration_ms(
            "write_deadline", default=LIMITS.write_deadline_ms, low=1, high=600_000
        ),
        ping_interval_ms=root.duration_ms("ping_interval", default=120_000, low=100, high=3_600_000),
        lame_duck_grace_ms=grace_ms,
        lame_duck_duration_ms=duration_ms,
        **bounded,
    )


def _listen(root: Fields, base: Address) -> Address:
    found = read_listen(root, "listen", replace(base, port=0), "host", "net", "addr")
    return replace(found, port=found.port or DEFAULT_PORT)


def _monitor(root: Fields) -> tuple[Address, bool]:
    """Where, and whether over TLS."""
    plain = _http(root, "http", "http_port", "monitor_port")
    secure = _http(root, "https", "https_port")
    if plain.port and secure.port:
        raise root.value.wrong("http and https: monitoring has one port, with TLS or without")
    return (secure, True) if secure.port else (plain, False)


def _http(root: Fields, name: str, *ports: str) -> Address:
    found = Address("0.0.0.0")
    if (value := root.take(name)) is not None:
        found = read_address(value, name, found.host)
    return Address(found.host, read_port(root, *ports) or found.port)


# ---- TLS and WebSocket ------------------------------------------------------------------------------------------------


def _tls(root: Fields, options: Options) -> Options:
    found = root.map("tls")
    tls = with_plain(
        read_tls(found) if found is not None else None, allow_plain=root.boolean("allow_non_tls")
    )
    if tls is not None:
        # A client may be slow twice: with the handshake, and with CONNECT.
        limits = replace(options.limits, auth_timeout_ms=tls.timeout_ms + 1000)
        options = replace(options, tls=tls, limits=limits)
    block = root.map("websocket", "ws")
    if block is None:
        return options
    address = read_listen(block, "websocket.listen", Address("0.0.0.0"))
    return replace(
        options,
        websocket=address,
        websocket_no_auth_user=block.text("no_auth_user"),
        web_rules=read_web_rules(block),
        websocket_tls=read_websocket(block),
    )


# ---- other servers ----------------------------------------------------------------------------------------------------


def _cluster(root: Fields, options: Options) -> Options:
    found = root.map("cluster")
    if found is None:
        return options
    cluster = read_cluster(found)
    return replace(options, cluster_name=cluster.name, cluster=cluster)


def _gateway(root: Fields, options: Options, warnings: list[str]) -> Options:
    found = root.map("gateway")
    if found is None:
        return options
    gateway = read_gateway(found, warnings)
    if options.cluster_name not in ("", gateway.name):
        raise found.value.wrong(
            f"gateway.name is {gateway.name!r} and cluster.name {options.cluster_name!r}; a cluster has one name"
        )
    if options.users and not gateway.user and gateway.tls is None:
        warnings.append(
            f"{found.value.place}: gateway has neither authorization nor tls: "
            "every program that reaches its port is let in as a server"
        )
    return replace(options, cluster_name=gateway.name, gateway=gateway)


def _refused(root: Fields) -> None:
    root.refuse("leaf nodes are not supported", "leafnodes", "leafnode", "leaf")
    root.refuse("MQTT is not supported", "mqtt")
    root.refuse(NO_JWT, "operator", "operators", "resolver", "resolver_preload", "resolver_tls")
    root.refuse(NO_JWT, "resolver_pinned_accounts", "trusted", "trusted_keys", "roots", "root_keys")
    root.of_no_use("default_js_domain", "default_sentinel", "tls_timeout", "ocsp", "ocsp_cache")
