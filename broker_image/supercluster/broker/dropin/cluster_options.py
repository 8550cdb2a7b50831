"""The `cluster` block of a configuration file: the other servers of the cluster, routes, and link
authorization.
"""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.broker.dropin.addresses import REMOTES_MAX, Address, Remote, read_listen, read_remote
from supercluster.broker.dropin.fields import Fields
from supercluster.broker.dropin.link_options import LinkOption, check_logins, read_link_tls, read_login

DEFAULT_PORT = 6222


@dataclass(frozen=True, slots=True)
class ClusterOption(LinkOption):
    """The block, or the flags, or both."""

    routes: tuple[Remote, ...] = ()


def read_cluster(found: Fields) -> ClusterOption:
    """The block.

    Raises:
        ConfError: something of it is wrong, or changes what crosses a route and is not there.
    """
    found.refuse("what crosses a route is not limited", "permissions")
    name = found.name("name")
    listen = read_listen(found, "cluster.listen", Address("0.0.0.0"))
    user, password = read_login(found, "cluster")
    values = list(found.listed("routes"))
    if len(values) > REMOTES_MAX:
        raise values[REMOTES_MAX].wrong(f"cluster.routes has more than {REMOTES_MAX} entries")
    routes = tuple(read_remote(value, DEFAULT_PORT, "a route has to be a URL,") for value in values)
    option = ClusterOption(
        name,
        listen.host,
        listen.port,
        found.text("advertise", "cluster_advertise"),
        user,
        password,
        read_link_tls(found, "cluster"),
        routes,
    )
    found.of_no_use(
        *("no_advertise", "connect_retries", "connect_backoff", "pool_size", "accounts", "compression"),
        *("ping_interval", "ping_max", "write_deadline", "write_timeout"),
    )
    found.done()
    check_logins(found.value, "cluster.routes: all of them", routes)
    if routes and not option.port:
        raise found.value.wrong("cluster: routes need a port of its own, as in listen: 0.0.0.0:6222")
    return option
