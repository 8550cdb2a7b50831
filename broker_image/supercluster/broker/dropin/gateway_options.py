"""The `gateway` block of a configuration file: the other clusters, their addresses, and link authorization.

All clusters of a super-cluster must name the same clusters (`docs/adr/drop-in-clusters.md`). `clusters` holds
that list; the first of them by name starts the map of streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain

from supercluster.broker.dropin.addresses import (
    REMOTES_MAX,
    Address,
    Remote,
    address_of,
    read_listen,
    read_remote,
)
from supercluster.broker.dropin.conf import Value
from supercluster.broker.dropin.fields import Fields, shown
from supercluster.broker.dropin.link_options import LinkOption, check_logins, read_link_tls, read_login
from supercluster.broker.settings.settings import SEEDS_MAX

DEFAULT_PORT = 7222


@dataclass(frozen=True, slots=True)
class GatewayOption(LinkOption):
    """The block; without a name there is none."""

    remotes: Mapping[str, tuple[Remote, ...]] = field(default_factory=dict)
    """Of other clusters, by their names."""

    @property
    def clusters(self) -> tuple[str, ...]:
        """All that belong together, in order."""
        return tuple(sorted({self.name, *self.remotes}))

    @property
    def sent(self) -> Remote | None:
        """An address with the user that this server is to the others; None: it is the one that they have to say here."""
        named = (remote for remotes in self.remotes.values() for remote in remotes if remote.user)
        return next(named, None)


def read_gateway(found: Fields, warnings: list[str]) -> GatewayOption:
    """The block.

    Raises:
        ConfError: something of it is wrong, or changes who is linked with whom and is not there.
    """
    place = found.value
    name = found.name("name")
    if not name:
        raise place.wrong("gateway needs name: the own cluster's")
    listen = read_listen(found, "gateway.listen", Address("0.0.0.0"))
    if not listen.port:
        raise place.wrong(
            "gateway needs a port of its own, as in listen: 0.0.0.0:7222 (-1: any that is free)"
        )
    user, password = read_login(found, "gateway")
    tls = read_link_tls(found, "gateway")
    advertise = _advertise(found)
    if not found.boolean("reject_unknown_cluster", "reject_unknown", default=True):
        warnings.append(
            f"{place.place}: gateway.reject_unknown_cluster has no effect here: "
            "clusters that are not named are always refused"
        )
    remotes = _remotes(found, name)
    found.of_no_use("connect_retries", "connect_backoff", "write_deadline", "write_timeout")
    found.done()
    option = GatewayOption(name, listen.host, listen.port, advertise, user, password, tls, remotes)
    check_logins(place, "gateway.gateways: all URLs", chain.from_iterable(remotes.values()))
    if not remotes:
        warnings.append(
            f"{place.place}: gateway.gateways names no other cluster, so none is let in: every file "
            "has to name all clusters"
        )
    return option


def _advertise(found: Fields) -> str:
    value = found.take("advertise")
    if value is None:
        return ""
    address = address_of(value.data, "") if isinstance(value.data, str) else None
    if address is None or not address.host or address.port <= 0:
        raise value.wrong(f"gateway.advertise has to be host:port, not {shown(value)}")
    return f"[{address.host}]:{address.port}" if ":" in address.host else f"{address.host}:{address.port}"


def _remotes(found: Fields, own: str) -> dict[str, tuple[Remote, ...]]:
    """Addresses by cluster; those of the own one are read, and left out: one list may serve all clusters."""
    remotes: dict[str, tuple[Remote, ...]] = {}
    places: dict[str, Value] = {}
    for value in found.listed("gateways"):
        entry = found.inner(value, "gateways")
        name, addresses = _remote(entry)
        if name in places:
            raise value.wrong(f"gateway.gateways names cluster {name!r} twice")
        places[name] = value
        if name != own:
            remotes[name] = addresses
        if len(places) > REMOTES_MAX or sum(map(len, remotes.values())) > SEEDS_MAX:
            raise value.wrong(
                f"gateway.gateways has more than {REMOTES_MAX} clusters, or {SEEDS_MAX} addresses in all"
            )
    return remotes


def _remote(entry: Fields) -> tuple[str, tuple[Remote, ...]]:
    name = entry.name("name")
    if not name:
        raise entry.value.wrong("gateway.gateways: an entry needs name: the other cluster's")
    entry.refuse("one tls serves the links with all clusters; give it to gateway", "tls")
    values = list(entry.listed("urls"))
    if (single := entry.take("url")) is not None:
        values.append(single)
    entry.done()
    if not values:
        raise entry.value.wrong(f"gateway.gateways: {name} needs url, or urls: where its servers are")
    what = "a gateway's address has to be a URL,"
    return name, tuple(read_remote(value, DEFAULT_PORT, what) for value in values)
