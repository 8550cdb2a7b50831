"""What nats-server's configuration and flags say, as far as a broker here can do it.

What changes who may do what, or where messages are, and is not carried out, is refused; what only looks different without it is
named in a warning; what nats-server does not know either is an error. All with the place in the file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields, shown, text_of
from supercluster.broker.protocol.permissions import (
    PATTERNS_MAX,
    RESPONSE_TTL_DEFAULT_MS,
    RESPONSES_DEFAULT,
    Permissions,
    Responses,
    Rules,
    is_pattern,
)

DEFAULT_PORT = 4222
DEFAULT_STORE_DIR = "/tmp/nats/jetstream"
ANY_PORT = -1
"""Any that is free."""
DEFAULT_ACCOUNT = "$G"
SYSTEM_ACCOUNT = "$SYS"

_JWT = "accounts by JWT are not there; name accounts and users in the file"
_USELESS = (
    *(
        "logtime",
        "logtime_utc",
        "syslog",
        "remote_syslog",
        "log_size_limit",
        "logfile_size_limit",
        "log_max_num",
    ),
    *(
        "logfile_max_num",
        "max_traced_msg_len",
        "trace",
        "trace_verbose",
        "trace_headers",
        "prof_port",
        "prof_block_rate",
    ),
    *("disable_sublist_cache", "max_closed_clients", "connect_error_reports", "reconnect_error_reports"),
    *(
        "write_deadline",
        "write_timeout",
        "lame_duck_grace_period",
        "max_sub_tokens",
        "no_header_support",
        "http_base_path",
    ),
    *(
        "ping_interval_jitter",
        "no_fast_producer_stall",
        "proxies",
        "proxy_protocol",
        "max_traced_msg_len",
        "feature_flags",
    ),
    *("no_system_account", "no_sys_acc", "metadata", "disable_jetstream_banner", "cors", "server_metadata"),
)


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 is no port at all, -1 any that is free."""

    host: str = ""
    port: int = 0


@dataclass(frozen=True, slots=True)
class JetStreamLimits:
    """Bytes; 0: as much as there is."""

    memory_bytes: int = 0
    file_bytes: int = 0
    streams: int = 0
    consumers: int = 0


@dataclass(frozen=True, slots=True)
class UserOption:
    """A user, or (with a token alone) whoever knows it."""

    account: str = DEFAULT_ACCOUNT
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    permissions: Permissions | None = None
    """None: everything."""


@dataclass(frozen=True, slots=True)
class Options:
    """All of it."""

    server_name: str = ""
    listen: Address = Address("0.0.0.0", DEFAULT_PORT)
    monitor: Address = Address()
    client_advertise: str = ""
    cluster_name: str = ""
    jetstream: bool = False
    store_dir: str = DEFAULT_STORE_DIR
    max_memory_bytes: int = 0
    max_file_bytes: int = 0
    sync_interval_ms: int = 120_000
    """nats-server's own default."""
    tags: tuple[str, ...] = ()
    max_payload_bytes: int = 1 << 20
    max_control_line_bytes: int = 4096
    max_connections: int = 65536
    max_subscriptions: int = 0
    """Of one connection; 0: as many as there may be."""
    max_pending_bytes: int = 64 << 20
    ping_interval_ms: int = 120_000
    pings_out_max: int = 2
    auth_timeout_ms: int = 2000
    lame_duck_ms: int = 120_000
    users: tuple[UserOption, ...] = ()
    account_limits: tuple[tuple[str, JetStreamLimits | None], ...] = ()
    """Per account that the file names; None: it has no JetStream."""
    system_account: str = SYSTEM_ACCOUNT
    no_auth_user: str = ""
    debug: bool = False
    log_file: str = ""
    pid_file: str = ""
    ports_file_dir: str = ""
    warnings: tuple[str, ...] = ()
    """What has no effect here, each with its place."""


def read(tree: Value) -> Options:
    """The options of a file.

    Raises:
        ConfError: with the place of what is wrong, unknown or not carried out.
    """
    warnings: list[str] = []
    root = Fields(tree, "", warnings)
    base = Options()
    options = replace(
        base,
        server_name=_server_name(root),
        listen=_listen(root, base.listen),
        monitor=_monitor(root),
        client_advertise=root.text("client_advertise"),
        max_payload_bytes=root.integer("max_payload", default=base.max_payload_bytes, low=1, high=32 << 20),
        max_control_line_bytes=root.integer("max_control_line", default=4096, low=512, high=65535),
        max_connections=root.integer(
            "max_connections", "max_conn", default=base.max_connections, low=1, high=1 << 20
        ),
        max_subscriptions=root.integer("max_subscriptions", "max_subs", default=0, high=10_000_000),
        max_pending_bytes=root.integer(
            "max_pending", default=base.max_pending_bytes, low=64 << 10, high=1 << 30
        ),
        ping_interval_ms=root.duration_ms("ping_interval", default=120_000, low=100, high=3_600_000),
        pings_out_max=root.integer("ping_max", default=2, low=1, high=100),
        lame_duck_ms=root.duration_ms("lame_duck_duration", default=base.lame_duck_ms, low=0, high=600_000),
        tags=root.texts("server_tags"),
        no_auth_user=root.text("no_auth_user"),
        system_account=root.text("system_account", "system", default=SYSTEM_ACCOUNT),
        debug=root.boolean("debug"),
        log_file=root.text("logfile", "log_file"),
        pid_file=root.text("pidfile", "pid_file"),
        ports_file_dir=root.text("ports_file_dir"),
    )
    options = _jetstream(root, options)
    options = _authorization(root, options)
    options = _accounts(root, options)
    options = _cluster(root, options)
    _refused(root)
    root.of_no_use(*_USELESS)
    root.done()
    _check_no_auth_user(options, tree)
    return replace(options, warnings=tuple(warnings))


# ---- where it listens -------------------------------------------------------------------------------------------------


def address_of(text: str, host: str) -> Address | None:
    """host:port, :port or port; None when it is none of them."""
    name, colon, number = text.rpartition(":")
    if not colon:
        name = host
    found = number.removeprefix("-")
    if not found.isdigit() or (number.startswith("-") and number != "-1") or int(found) > 65535:
        return None
    return Address(name.removeprefix("[").removesuffix("]") or host, int(number))


def _address(value: Value, name: str, host: str) -> Address:
    found = address_of(text_of(value) or "", host)
    if found is None:
        raise value.wrong(f"{name} has to be host:port or a port from -1 to 65535, not {shown(value)}")
    return found


def _port(root: Fields, *names: str) -> int:
    return root.integer(*names, default=0, low=-1, high=65535)


def _listen(root: Fields, base: Address) -> Address:
    found = base
    if (value := root.take("listen")) is not None:
        found = _address(value, "listen", base.host)
    host = root.text("host", "net", "addr", default=found.host)
    return Address(host, _port(root, "port") or found.port or DEFAULT_PORT)


def _monitor(root: Fields) -> Address:
    root.refuse("monitoring over TLS is not there; put a proxy before http", "https", "https_port")
    found = Address("0.0.0.0")
    if (value := root.take("http")) is not None:
        found = _address(value, "http", found.host)
    return Address(found.host, _port(root, "http_port", "monitor_port") or found.port)


def _server_name(root: Fields) -> str:
    value = root.take("server_name", "name")
    if value is None:
        return ""
    name = text_of(value)
    if not name or len(name.encode()) > 63 or any(sign in name for sign in " .*>@/\\"):
        raise value.wrong(
            f"server_name has to be 1 to 63 bytes without spaces and . * > @ / \\, not {shown(value)}"
        )
    return name


# ---- JetStream --------------------------------------------------------------------------------------------------------


def _jetstream(root: Fields, options: Options) -> Options:
    value = root.take("jetstream")
    if value is None:
        return options
    if not isinstance(value.data, dict):
        return replace(options, jetstream=_is_on(value, "jetstream"))
    found = root.inner(value, "jetstream")
    found.refuse(
        "encryption at rest is not there; encrypt the volume", "key", "cipher", "ek", "encryption_key"
    )
    found.refuse("a domain is not there", "domain")
    interval = found.take("sync_interval", "sync")
    sync_interval_ms = options.sync_interval_ms
    if interval is not None:
        # "always" is each append's own: the stream says it here (`supercluster.dev/fsync`).
        if interval.data == "always":
            raise interval.wrong(
                "jetstream.sync_interval always: streams say so themselves, by the metadata supercluster.dev/fsync=always"
            )
        again = Fields(
            Value({"sync_interval": interval}, value.file, value.line, value.column), "jetstream", []
        )
        sync_interval_ms = again.duration_ms("sync_interval", default=0, low=1, high=600_000)
    changed = replace(
        options,
        jetstream=found.boolean("enabled", default=True),
        store_dir=found.text("store_dir", "storedir", default=options.store_dir),
        max_memory_bytes=found.integer("max_memory_store", "max_mem_store", "max_mem", default=0),
        max_file_bytes=found.integer("max_file_store", "max_file", default=0),
        sync_interval_ms=sync_interval_ms,
    )
    found.of_no_use(
        *(
            "unique_tag",
            "max_outstanding_catchup",
            "max_buffered_size",
            "max_buffered_msgs",
            "request_queue_limit",
        ),
        *(
            "limits",
            "tpm",
            "extension_hint",
            "strict",
            "meta_compact",
            "meta_compact_size",
            "meta_compact_sync",
        ),
        "info_queue_limit",
    )
    found.done()
    return changed


def _is_on(value: Value, name: str) -> bool:
    if isinstance(value.data, bool):
        return value.data
    if isinstance(value.data, str) and value.data.lower() in ("enabled", "enable", "disabled", "disable"):
        return value.data.lower().startswith("enable")
    raise value.wrong(f"{name} has to be true, enabled, false, disabled or a map, not {shown(value)}")


# ---- who may come in --------------------------------------------------------------------------------------------------

_NKEY = "users by nkey are not there yet; give user and password"


def _authorization(root: Fields, options: Options) -> Options:
    found = root.map("authorization")
    if found is None:
        return options
    found.refuse("auth callout is not there", "auth_callout")
    usual = _permissions(found, "default_permissions", "default_permission", "defaultperms", "permissions")
    users = [_user(found.inner(value, "users"), DEFAULT_ACCOUNT, usual) for value in found.listed("users")]
    own = UserOption(
        user=found.text("user", "username"),
        password=_password(found),
        token=_password(found, "token"),
        permissions=usual,
    )
    if own.user or own.token:
        if users:
            raise found.value.wrong(
                "authorization has a user or token of its own and users; only one of them may be"
            )
        users = [own]
    timeout_ms = found.duration_ms("timeout", default=options.auth_timeout_ms, low=50, high=60_000)
    found.of_no_use("proxy_required")
    found.done()
    return replace(options, users=(*options.users, *users), auth_timeout_ms=timeout_ms)


def _user(found: Fields, account: str, usual: Permissions | None) -> UserOption:
    permissions = _permissions(found, "permissions", "permission", "authorization")
    found.refuse(_NKEY, "nkey")
    found.refuse(
        "connection types are not told apart", "allowed_connection_types", "connection_types", "clients"
    )
    name = found.text("user", "username")
    if not name:
        raise found.value.wrong("a user needs a name (user)")
    password = _password(found)
    found.of_no_use("proxy_required", "account")
    found.done()
    return UserOption(account, name, password, permissions=permissions or usual)


def _permissions(found: Fields, *names: str) -> Permissions | None:
    inner = found.map(*names)
    if inner is None:
        return None
    publish = _rules(inner, "publish", "pub", "import")
    subscribe = _rules(inner, "subscribe", "sub", "export", with_queues=True)
    responses = _responses(inner)
    if responses is not None and publish.allow is None:
        publish = replace(publish, allow=())  # Who answers may do that, and nothing else that is not named.
    inner.done()
    return Permissions(publish, subscribe, responses)


def _rules(found: Fields, *names: str, with_queues: bool = False) -> Rules:
    """A subject, a list of them, or a map with allow and deny."""
    value = found.take(*names)
    if value is None:
        return Rules()
    if not isinstance(value.data, dict):
        return Rules(_patterns(value, names[0], with_queues=with_queues))
    inner = found.inner(value, names[0])
    lists = {
        name: _patterns(told, f"{names[0]}.{name}", with_queues=with_queues) if told is not None else None
        for name, told in (("allow", inner.take("allow")), ("deny", inner.take("deny")))
    }
    inner.done()
    return Rules(lists["allow"], lists["deny"] or ())


def _patterns(value: Value, name: str, *, with_queues: bool) -> tuple[bytes, ...]:
    told = value.data if isinstance(value.data, list) else [value]
    if len(told) > PATTERNS_MAX:
        raise value.wrong(f"{name} has more than {PATTERNS_MAX} subjects")
    for one in told:
        if not is_pattern(one.data, with_queue=with_queues):
            raise one.wrong(f"{name}: {shown(one)} is no subject")
    return tuple(str(one.data).encode() for one in told)


def _responses(found: Fields) -> Responses | None:
    value = found.take("allow_responses", "allow_response")
    if value is None or value.data is False:
        return None
    if value.data is True:
        return Responses()
    inner = found.inner(value, "allow_responses")
    responses = Responses(
        max(inner.integer("max", "max_msgs", default=RESPONSES_DEFAULT, low=-1), 0),
        inner.duration_ms("expires", "expiration", "ttl", default=RESPONSE_TTL_DEFAULT_MS),
    )
    inner.done()
    return responses


def _password(found: Fields, *names: str) -> str:
    value = found.take(*(names or ("pass", "password")))
    if value is None:
        return ""
    text = text_of(value)
    if text is None:
        raise value.wrong(f"{(names or ('password',))[0]} has to be a text")
    if text.startswith(("$2a$", "$2b$", "$2y$")):
        raise value.wrong(
            "passwords hashed with bcrypt are not there; give it plain, or take it from the environment"
        )
    return text


def _accounts(root: Fields, options: Options) -> Options:
    value = root.take("accounts")
    if value is None:
        return options
    named = root.inner(value, "accounts")
    users = list(options.users)
    limits: list[tuple[str, JetStreamLimits | None]] = []
    for name, inner in named.items():
        found = named.inner(inner, name)
        found.refuse(
            "exports and imports between accounts are not there yet", "exports", "imports", "mappings"
        )
        found.refuse(_JWT, "nkey")
        usual = _permissions(found, "default_permissions")
        users += [_user(found.inner(user, "users"), name, usual) for user in found.listed("users")]
        limits.append((name, _account_jetstream(found)))
        found.of_no_use("limits", "msg_trace", "trace_dest")
        found.done()
    taken = [user.user for user in users if user.user]
    for user in taken:
        if taken.count(user) > 1:
            raise value.wrong(f"user {user!r} is named twice; a user belongs to one account")
    return replace(options, users=tuple(users), account_limits=tuple(limits))


def _account_jetstream(found: Fields) -> JetStreamLimits | None:
    value = found.take("jetstream")
    if value is None:
        return None
    if not isinstance(value.data, dict):
        return JetStreamLimits() if _is_on(value, "jetstream") else None
    inner = found.inner(value, "jetstream")
    limits = JetStreamLimits(
        inner.integer("max_memory", "max_mem", "mem", "memory", default=0),
        inner.integer("max_store", "max_file", "max_disk", "store", "disk", default=0),
        inner.integer("max_streams", "streams", default=0, low=-1),
        inner.integer("max_consumers", "consumers", default=0, low=-1),
    )
    inner.of_no_use(
        *("max_bytes_required", "max_stream_bytes", "mem_max_stream_bytes", "memory_max_stream_bytes"),
        *("disk_max_stream_bytes", "store_max_stream_bytes", "max_ack_pending", "cluster_traffic"),
    )
    inner.done()
    return replace(limits, streams=max(limits.streams, 0), consumers=max(limits.consumers, 0))


def _check_no_auth_user(options: Options, tree: Value) -> None:
    if options.no_auth_user and options.no_auth_user not in (user.user for user in options.users):
        raise tree.wrong(f"no_auth_user {options.no_auth_user!r} is none of the users")


# ---- other servers ----------------------------------------------------------------------------------------------------


def _cluster(root: Fields, options: Options) -> Options:
    found = root.map("cluster")
    if found is None:
        return options
    found.refuse(
        "servers find one another by routes only in nats-server; brokers of a cluster are declared (a Cluster resource, or "
        "--config with --data-dir)",
        "routes",
    )
    name = found.text("name")
    found.of_no_use(
        *(
            "listen",
            "host",
            "port",
            "authorization",
            "advertise",
            "cluster_advertise",
            "no_advertise",
            "connect_retries",
        ),
        *(
            "pool_size",
            "accounts",
            "compression",
            "tls",
            "permissions",
            "ping_interval",
            "write_deadline",
            "connect_backoff",
        ),
    )
    found.done()
    return replace(options, cluster_name=name)


def _refused(root: Fields) -> None:
    root.refuse(
        "super-clusters are declared (a SuperCluster resource, or --config with --data-dir)",
        "gateway",
        "gateways",
    )
    root.refuse("leaf nodes are not there", "leafnodes", "leafnode", "leaf")
    root.refuse("MQTT is not there", "mqtt")
    root.refuse("the WebSocket listener is not set by this file yet", "websocket", "ws")
    root.refuse(
        _JWT,
        "operator",
        "operators",
        "resolver",
        "resolver_preload",
        "resolver_tls",
        "resolver_pinned_accounts",
    )
    root.refuse(_JWT, "trusted", "trusted_keys", "roots", "root_keys")
    root.refuse("TLS for clients is not there yet; it would be plain without it", "tls")
    root.of_no_use(
        "allow_non_tls", "default_js_domain", "default_sentinel", "tls_timeout", "ocsp", "ocsp_cache"
    )
    root.refuse("subject mappings are not there", "mappings", "maps")
