"""nats-server's flags: one dash or two, `-name value` or `-name=value`. A flag overrides the configuration
file.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from supercluster.broker.auth.users import User
from supercluster.broker.dropin.addresses import address_of, parse_remote, parse_remotes
from supercluster.broker.dropin.cluster_options import DEFAULT_PORT, ClusterOption
from supercluster.broker.dropin.options import Options
from supercluster.broker.dropin.user_options import CLIENT, DEFAULT_ACCOUNT
from supercluster.broker.settings.settings import ClientTls

_SWITCHES = {
    "jetstream": ("js",),
    "debug": ("D", "DV", "DVV"),
    "test": ("t",),
    "version": ("v",),
    "help": ("h",),
    "tls": (),
    "tlsverify": (),
}
"""Long name → short ones."""
_VALUES = {
    "addr": ("a", "net"),
    "port": ("p",),
    "http_port": ("m",),
    "https_port": ("ms",),
    "name": ("n", "server_name"),
    "config": ("c",),
    "store_dir": ("sd",),
    "pid": ("P",),
    "log": ("l",),
    "signal": ("sl",),
    "cluster_listen": ("cluster",),
    **dict.fromkeys(("user", "pass", "auth", "client_advertise", "ports_file_dir", "cluster_name"), ()),
    **dict.fromkeys(("routes", "tlscert", "tlskey", "tlscacert"), ()),
}
_LONG = {short: name for names in (_SWITCHES, _VALUES) for name, shorts in names.items() for short in shorts}
_USELESS_SWITCHES = frozenset(
    {"T", "logtime", "logtime_utc", "s", "syslog", "V", "VV", "trace", "no_advertise", "help_tls"}
)
_USELESS_VALUES = frozenset(
    {
        *("r", "remote_syslog", "log_size_limit", "max_traced_msg_len", "profile", "cluster_advertise"),
        "connect_retries",
    }
)


class FlagError(Exception):
    """A flag can't be used; the text names it."""


@dataclass(slots=True)
class Flags:
    """What was given, by the long names."""

    values: dict[str, str] = field(default_factory=dict)
    switches: dict[str, bool] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def has(self, switch: str) -> bool:
        return self.switches.get(switch, False)


def parse(arguments: Sequence[str]) -> Flags:
    """
    Raises:
        FlagError: a flag is unknown, or lacks its value.
    """
    found = Flags()
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if not word.startswith("-") or word.strip("-") == "":
            raise FlagError(f"{word!r} is no flag; see --help")
        given, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        name = _LONG.get(given, given)
        if name in _SWITCHES or given in _USELESS_SWITCHES:
            if equals and value.lower() not in ("true", "false", "1", "0", "t", "f"):
                raise FlagError(f"{word}: true or false belongs there")
            found.switches[name] = not equals or value.lower() in ("true", "1", "t")
            if given in _USELESS_SWITCHES:
                found.warnings.append(f"-{given} has no effect here")
            continue
        if name not in _VALUES and given not in _USELESS_VALUES:
            raise FlagError(f"{word.partition('=')[0]} is no flag of nats-server; see --help")
        if not equals:
            if not waiting:
                raise FlagError(f"{word} lacks its value")
            value = waiting.pop()
        if given in _USELESS_VALUES:
            found.warnings.append(f"-{given} has no effect here")
        else:
            found.values[name] = value
    return found


def applied(flags: Flags, options: Options) -> Options:
    """The options with what the flags say.

    Raises:
        FlagError: a value is none that the flag may have.
    """
    values = flags.values
    listen, monitor = options.listen, options.monitor
    if "addr" in values:
        host = values["addr"]
        found = address_of(host, "") if ":" in host and not _is_ipv6(host) else None
        listen = found if found is not None else replace(listen, host=host.strip("[]"))
        monitor = replace(monitor, host=listen.host)
    if "port" in values:
        listen = replace(listen, port=_port("port", values["port"]))
    has_monitor_tls = options.has_monitor_tls
    for name, is_secure in (("http_port", False), ("https_port", True)):
        if name not in values:
            continue
        if monitor.port and has_monitor_tls is not is_secure:
            raise FlagError("--http_port and --https_port: monitoring has one port, with TLS or without")
        monitor, has_monitor_tls = replace(monitor, port=_port(name, values[name])), is_secure
    users = options.users
    if "auth" in values:
        users = (User(DEFAULT_ACCOUNT, CLIENT, token=values["auth"]),)
    elif "user" in values:
        users = (User(DEFAULT_ACCOUNT, CLIENT, values["user"], values.get("pass", "")),)
    elif "pass" in values:
        raise FlagError("--pass is given without --user")
    return replace(
        options,
        tls=_tls(flags, options.tls),
        listen=listen,
        monitor=monitor,
        has_monitor_tls=has_monitor_tls,
        users=users,
        server_name=values.get("name", options.server_name),
        client_advertise=values.get("client_advertise", options.client_advertise),
        cluster_name=values.get("cluster_name", options.cluster_name),
        cluster=_cluster(values, options.cluster),
        jetstream=replace(
            options.jetstream,
            enabled=flags.switches.get("jetstream", options.jetstream.enabled),
            store_dir=values.get("store_dir", options.jetstream.store_dir),
        ),
        debug=flags.switches.get("debug", options.debug),
        log_file=values.get("log", options.log_file),
        pid_file=values.get("pid", options.pid_file),
        ports_file_dir=values.get("ports_file_dir", options.ports_file_dir),
        warnings=(*options.warnings, *flags.warnings),
    )


def _cluster(values: Mapping[str, str], of_file: ClusterOption) -> ClusterOption:
    """Errors show no more than the flag: its value may have a password."""
    found = of_file
    if "cluster_listen" in values:
        text = values["cluster_listen"]
        user, password = "", ""
        if "://" in text:
            is_any = text.endswith(":-1")
            route = parse_remote(text.replace(":-1", ":0") if is_any else text, DEFAULT_PORT)
            if route is None:
                raise FlagError("--cluster_listen has to be host:port, or a URL as in nats://host:6222")
            user, password = route.user, route.password
            text = f"{route.address.rpartition(':')[0]}:-1" if is_any else route.address
        address = address_of(text, "0.0.0.0")
        if address is None:
            raise FlagError("--cluster_listen has to be host:port, or a URL as in nats://host:6222")
        found = replace(found, host=address.host, port=address.port)
        if user:
            found = replace(found, user=user, password=password)
    if "routes" in values:
        routes = parse_remotes(values["routes"].split(","), DEFAULT_PORT)
        if routes is None:
            raise FlagError("--routes has to be a list of URLs by comma, as in nats-route://host:6222")
        found = replace(found, routes=routes)
    if found.routes and not found.port:
        raise FlagError("--routes needs a port for the cluster: --cluster_listen nats://0.0.0.0:6222")
    return found


def _tls(flags: Flags, of_file: ClientTls | None) -> ClientTls | None:
    """What the flags say goes before the file's block as a whole, as in nats-server."""
    cert, key, ca = (flags.values.get(name, "") for name in ("tlscert", "tlskey", "tlscacert"))
    verify = flags.has("tlsverify")
    if flags.switches.get("tls") is False and not verify:
        return None
    if not (flags.has("tls") or verify or cert or key or ca):
        return of_file
    for name, value in (("tlscert", cert), ("tlskey", key)):
        if not value:
            raise FlagError(f"TLS needs a certificate and its key: --{name} is not given")
    return ClientTls(Path(cert), Path(key), Path(ca) if ca else None, verify=verify)


def _is_ipv6(text: str) -> bool:
    """Is it an address alone, with brackets or without?"""
    try:
        ipaddress.IPv6Address(text.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def _port(name: str, text: str) -> int:
    found = address_of(text, "")
    if found is None or ":" in text:
        raise FlagError(f"--{name} is {text!r}; it has to be a port from -1 to 65535")
    return found.port
