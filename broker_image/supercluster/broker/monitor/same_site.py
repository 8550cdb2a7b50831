"""Refuses requests under `/admin/` that pages of other sites make through a user's browser.

A page can send a POST anywhere, but not one of JSON, and the browser sends the page's origin with it. By DNS
rebinding a page's own name may lead to the broker. So without users the requested host name has to be one
that no stranger can own: an address, a name without a dot, a name of the cluster, or one from the settings.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection

from supercluster.broker.protocol.web_origins import WebOrigins

CLUSTER_SUFFIXES = (".localhost", ".svc", ".svc.cluster.local")
"""Nobody registers a name that ends so."""

_SAME = WebOrigins(is_same=True)


def refusal(
    method: str,
    host: str,
    origin: str,
    content_type: str,
    own_names: Collection[str],
    *,
    is_open: bool,
    is_secure: bool,
) -> tuple[int, str] | None:
    """Status and reason for what may come of a foreign page; None: it does not.

    Args:
        host, origin: the request's headers, empty where there are none.
        own_names: names of this broker and its peers, in small letters.
        is_open: nobody is asked for credentials.
    """
    if why := _SAME.refusal(origin, host, is_secure=is_secure):
        return 403, why
    if is_open and host and not is_own(host, own_names):
        return 403, (
            f"host {host[:80]!r} is no address and no name of this super-cluster; ask by its address, or configure users"
        )
    if method == "POST" and (is_open or origin) and content_type != "application/json":
        return 415, "Content-Type has to be application/json"
    return None


def is_own(host: str, own_names: Collection[str]) -> bool:
    """Can the name, with a port or without, only lead here where somebody meant it to?"""
    name = host.lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    name = name.rstrip(".")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return "." not in name or name.endswith(CLUSTER_SUFFIXES) or name in own_names
    return True
