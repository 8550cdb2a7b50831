"""Turns drop-in options into a broker's settings, its place and its name."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from supercluster.broker.dropin.addresses import Address
from supercluster.broker.dropin.options import Options
from supercluster.broker.dropin.startup_options import StartError
from supercluster.broker.settings.place import Place
from supercluster.broker.settings.settings import Ports, Settings


def settings_of(wanted: Options, name: str) -> Settings:
    """What the broker is told. Clusters that name different ones have different identities, and do not link: who begins the map of
    streams is decided by these names (`docs/adr/drop-in-clusters.md`)."""
    gateway = wanted.gateway
    return Settings(
        super_cluster="nats",
        identity=f"clusters {', '.join(gateway.clusters)}" if gateway.name else "nats",
        cluster=wanted.cluster_name or "default",
        peers={name: "127.0.0.1:1"},  # Its own, which nobody dials; others are found by routes.
        meta_voters=() if wanted.is_linked else (name,),
        ports=Ports(
            client=_kernel_port(wanted.listen),
            cluster=max(wanted.cluster.port, 0),
            monitor=_kernel_port(wanted.monitor),
            gateway=max(gateway.port, 0),
            websocket=_kernel_port(wanted.websocket) if wanted.websocket.port else -1,
        ),
        client_tls=wanted.tls,
        cluster_tls=wanted.cluster.tls,
        gateway_tls=gateway.tls,
        gateways={
            cluster: tuple(remote.address for remote in remotes)
            for cluster, remotes in gateway.remotes.items()
        }
        if gateway.name
        else None,
        websocket_tls=wanted.websocket_tls,
        monitor_tls=wanted.monitor_tls,
        limits=wanted.limits,
        storage=wanted.jetstream.storage,
        jetstream=wanted.jetstream.limits,
        tags=wanted.tags,
        domain=wanted.jetstream.domain,
    )


def _kernel_port(address: Address) -> int:
    return max(address.port, 0)


def place_of(wanted: Options, name: str, data_dir: Path, config: Path) -> Place:
    """Where and as whom it runs."""
    gateway = wanted.gateway
    routes = tuple(route.address for route in wanted.cluster.routes)
    towards = (*routes, *(remote.address for remotes in gateway.remotes.values() for remote in remotes))
    return Place(
        name=name,
        host=wanted.listen.host,
        advertise=_told_host(wanted.listen.host, towards) if wanted.is_linked else wanted.client_advertise,
        config=config,
        data_dir=data_dir,
        volume_identity=f"clusters-from-{gateway.clusters[0]}" if gateway.name else "",
        monitor_host=wanted.monitor.host,
        websocket_host=wanted.websocket.host,
        web_rules=wanted.web_rules,
        is_alone=not wanted.is_linked,
        routes=routes if wanted.is_linked else None,
        has_cluster_port=bool(wanted.cluster.port),
        cluster_host=wanted.cluster.host,
        client_advertise=wanted.client_advertise if wanted.is_linked else "",
        route_advertise=wanted.cluster.advertise,
        gateway_host=gateway.host,
        gateway_advertise=gateway.advertise or _bracketed(_told_host(gateway.host, towards)),
        has_headers=wanted.has_headers,
        is_monitored=wanted.monitor.port != 0,
        shows_nats_pages=True,
    )


def name_of(wanted: Options, data_dir: Path) -> str:
    """The server's name: as wanted, or the one that its streams know it by.

    Raises:
        StartError: the streams in the directory are those of a server of another name.
        OSError: the file with the name can't be read or written.
    """
    if not wanted.jetstream.enabled:
        return wanted.server_name or _new_name()
    file = data_dir / "server_name"
    try:
        data_dir.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise StartError(
            f"Can't start JetStream: storage directory is not a directory: {wanted.jetstream.store_dir}"
        ) from None
    except OSError as error:
        raise StartError(f"Can't start JetStream: could not create storage directory: {error}") from None
    with suppress(FileNotFoundError):
        held = file.read_text(encoding="utf-8").strip()
        if wanted.server_name and held != wanted.server_name:
            raise StartError(
                f"the streams in {data_dir} are those of server {held!r}: start it with --name {held}, or with another store_dir"
            )
        return held
    name = wanted.server_name or _new_name()
    file.write_text(name + "\n", encoding="utf-8")
    return name


def _new_name() -> str:
    return f"N{secrets.token_hex(16).upper()}"


def _told_host(host: str, towards: Sequence[str]) -> str:
    """What other servers are told of where this one is bound to all addresses: the one that leads to them."""
    if reachable(host) == host or not towards:
        return reachable(host)
    there = towards[0].rpartition(":")[0].strip("[]")
    try:
        with socket.socket(socket.AF_INET6 if ":" in there else socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((there, 1))  # Nothing is sent.
            return str(probe.getsockname()[0])
    except OSError:
        return reachable(host)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def reachable(host: str) -> str:
    """An address that reaches a server which is bound to all of them."""
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
