"""`supercluster rebalance`: even out client connections over the brokers of a cluster (CL-7)."""

from __future__ import annotations

from typing import Annotated

from supercluster.app.cli.completion import names
from supercluster.app.cli.options import DryRun, argument, number, option, seconds
from supercluster.app.cli.session import Site
from supercluster.app.commands.errors import NotReadyError


async def rebalance(
    site: Site,
    cluster: Annotated[str, argument("CLUSTER", "Name of the Cluster.", autocompletion=names("Cluster"))],
    dry_run: DryRun = False,
    per_s: Annotated[
        int,
        option("N", "Clients that each broker asks per second.", parser=number(1, 1_000, "a number")),
    ] = 20,
    timeout: Annotated[float, seconds("Limit for the whole command.")] = 300.0,
) -> None:
    """Even out client connections over the brokers of a cluster.

    Brokers with more clients than the others ask some to reconnect elsewhere. Clients lose nothing, and those that wait for an answer are
    left alone. Run it where the brokers' monitoring ports can be reached.
    """
    from supercluster.app.admin import BrokerAdmin
    from supercluster.app.commands import rebalance

    wish = rebalance.Wish(cluster, per_s, dry_run, timeout)
    brokers = await rebalance.find(site.kube, site.namespace, cluster)
    async with BrokerAdmin() as admin:
        done = await rebalance.rebalance(admin, brokers, wish, lambda text: print(text, flush=True))
    if not done:
        raise NotReadyError(f"not done after {timeout:g} s; the brokers continue without this command")
