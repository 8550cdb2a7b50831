"""nats-server's flags: one dash or two, `-name value` or `-name=value`; what a flag says goes before what the file says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from supercluster.broker.dropin.options import (
    Address,
    Options,
    UserOption,
    address_of,
)

_SWITCHES = {
    "js": "jetstream",
    "D": "debug",
    "DV": "debug",
    "DVV": "debug",
    "t": "test",
    "v": "version",
    "h": "help",
}
_VALUES = {
    "a": "addr",
    "net": "addr",
    "p": "port",
    "m": "http_port",
    "n": "name",
    "server_name": "name",
    "c": "config",
    "sd": "store_dir",
    "P": "pid",
    "l": "log",
    "sl": "signal",
}
_LONG_SWITCHES = frozenset({"jetstream", "debug", "test", "version", "help"})
_LONG_VALUES = frozenset(
    {
        "addr",
        "port",
        "http_port",
        "name",
        "config",
        "store_dir",
        "pid",
        "log",
        "signal",
        "user",
        "pass",
        "auth",
    }
    | {"client_advertise", "ports_file_dir", "cluster_name"}
)
_USELESS_SWITCHES = frozenset(
    {"T", "logtime", "logtime_utc", "s", "syslog", "V", "VV", "trace", "no_advertise", "help_tls"}
)
_USELESS_VALUES = frozenset(
    {
        "r",
        "remote_syslog",
        "log_size_limit",
        "max_traced_msg_len",
        "profile",
        "cluster_advertise",
        "connect_retries",
    }
    | {"cluster", "cluster_listen"}
)
_REFUSED = {
    "routes": "servers find one another by routes only in nats-server; brokers of a cluster are declared (a Cluster resource, "
    "or --config with --data-dir)",
    "tls": "TLS for clients is not there yet; it would be plain without it",
    "tlscert": "TLS for clients is not there yet; it would be plain without it",
    "tlskey": "TLS for clients is not there yet; it would be plain without it",
    "tlsverify": "TLS for clients is not there yet; it would be plain without it",
    "tlscacert": "TLS for clients is not there yet; it would be plain without it",
    "ms": "monitoring over TLS is not there; put a proxy before the monitoring port",
    "https_port": "monitoring over TLS is not there; put a proxy before the monitoring port",
}


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
        FlagError: a flag is unknown, refused, or lacks its value.
    """
    found = Flags()
    waiting = list(reversed(arguments))
    while waiting:
        word = waiting.pop()
        if not word.startswith("-") or word.strip("-") == "":
            raise FlagError(f"{word!r} is no flag; see --help")
        given, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if given in _REFUSED:
            raise FlagError(f"{word.partition('=')[0]}: {_REFUSED[given]}")
        name = _SWITCHES.get(given, given)
        if name in _LONG_SWITCHES or given in _USELESS_SWITCHES:
            if equals and value.lower() not in ("true", "false", "1", "0", "t", "f"):
                raise FlagError(f"{word}: true or false belongs there")
            found.switches[name] = not equals or value.lower() in ("true", "1", "t")
            if given in _USELESS_SWITCHES:
                found.warnings.append(f"-{given} has no effect here")
            continue
        name = _VALUES.get(given, given)
        if name not in _LONG_VALUES and given not in _USELESS_VALUES:
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
        found = address_of(values["addr"], "") if ":" in values["addr"] else None
        listen = (
            Address(found.host, found.port) if found is not None else replace(listen, host=values["addr"])
        )
        monitor = replace(monitor, host=listen.host)
    if "port" in values:
        listen = replace(listen, port=_port("port", values["port"]))
    if "http_port" in values:
        monitor = replace(monitor, port=_port("http_port", values["http_port"]))
    users = options.users
    if "auth" in values:
        users = (UserOption(token=values["auth"]),)
    elif "user" in values:
        users = (UserOption(user=values["user"], password=values.get("pass", "")),)
    elif "pass" in values:
        raise FlagError("--pass is given without --user")
    return replace(
        options,
        listen=listen,
        monitor=monitor,
        users=users,
        server_name=values.get("name", options.server_name),
        client_advertise=values.get("client_advertise", options.client_advertise),
        cluster_name=values.get("cluster_name", options.cluster_name),
        jetstream=flags.switches.get("jetstream", options.jetstream),
        store_dir=values.get("store_dir", options.store_dir),
        debug=flags.switches.get("debug", options.debug),
        log_file=values.get("log", options.log_file),
        pid_file=values.get("pid", options.pid_file),
        ports_file_dir=values.get("ports_file_dir", options.ports_file_dir),
        warnings=(*options.warnings, *flags.warnings),
    )


def _port(name: str, text: str) -> int:
    found = address_of(text, "")
    if found is None or ":" in text:
        raise FlagError(f"--{name} is {text!r}; it has to be a port from -1 to 65535")
    return found.port
