"""Turns flags and a configuration file into a server's options, at its start and at each reload."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from supercluster.broker.dropin import conf, flags, options
from supercluster.broker.dropin.flags import Flags
from supercluster.broker.dropin.options import Options
from supercluster.broker.migration.worlds import MARK
from supercluster.broker.net.clients.certificates import ClientCertificates
from supercluster.broker.settings.settings import SettingsError

FILE_BYTES_MAX = 16 << 20


class StartError(Exception):
    """The server can't start; the text says why."""


def load(given: Flags, environment: Mapping[str, str]) -> Options:
    """The options of the file, if one is named, and of the flags.

    Raises:
        ConfError: the file's text can't be used.
        FlagError: a flag can't.
        StartError: the file can't be read, or a certificate's.
    """
    found = Options()
    if "config" in given.values:
        name = given.values["config"]
        try:
            text = _text(Path(name))
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"configuration file {name} can't be read: {error}") from error
        tree = conf.parse(text, name, read=_included, environment=environment)
        found = options.read(tree)
        if not tree.data:
            why = f"{name}: config has no values or is empty"
            if given.has("test"):
                raise StartError(why)
            found = replace(found, warnings=(why,))  # As with nats-server: a server may start with one.
    found = flags.applied(given, found)
    if found.gateway.name not in ("", found.cluster_name):
        raise StartError(
            f"gateway.name is {found.gateway.name!r} and --cluster_name {found.cluster_name!r}; a cluster has one name"
        )
    if MARK in found.server_name:
        raise StartError(
            f"server_name is {found.server_name!r}; {MARK} is not allowed in it: it separates the names of a server and its super-cluster"
        )
    if found.jetstream.enabled and found.is_linked:
        for name, value in (("server_name", found.server_name), ("cluster.name", found.cluster_name)):
            if not value:
                raise StartError(f"streams in a cluster need {name}: other servers know this one by it")
    if found.has_monitor_tls and found.tls is None:
        raise StartError("https needs tls: monitoring over TLS shows the certificate of the clients' port")
    for block, tls in (("tls", found.tls), ("websocket.tls", found.websocket_tls)):
        try:
            if tls is not None:
                ClientCertificates(tls, block)
        except SettingsError as error:
            raise StartError(str(error)) from None
    return replace(found, warnings=(*found.warnings, *by_name_alone(found)))


def by_name_alone(found: Options) -> list[str]:
    """Warnings: where certificates say who a client is, users need no password; on a port where they do not, the name is enough."""
    ports = {"clients": found.tls}
    if found.websocket.port:
        ports["websocket"] = found.websocket_tls
    maps = {name: tls is not None and tls.verify_and_map for name, tls in ports.items()}
    if not any(maps.values()):
        return []
    bare = [user.user for user in found.users if user.user and not user.password and not user.token]
    return [
        f"user {user!r} has no password, and the port for {port} identifies clients by no certificate: the name alone logs in there"
        for port, is_mapped in maps.items()
        for user in bare
        if not is_mapped and user != found.no_auth_user
    ]


def _included(file: str, name: str) -> tuple[str, str]:
    path = Path(file).parent / name
    return str(path), _text(path)


def _text(path: Path) -> str:
    if path.stat().st_size > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"larger than {FILE_BYTES_MAX} bytes", str(path))
    return path.read_text(encoding="utf-8")
