"""`supercluster recover`: continue from one copy after the majority was lost for good (RP-8)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from supercluster.app.cli.options import DryRun, OfSuperCluster, TextOutput, argument, flag, option
from supercluster.app.cli.session import Site, command
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK

if TYPE_CHECKING:
    from supercluster.app.commands.recover_stream import Outcome

recover = typer.Typer(
    help="Recover a stream, or the map of streams, that lost its majority for good, from one copy. Messages may be lost. Without --node, or "
    "with --dry-run, show the copies and what choosing each may lose. Run it where the brokers' monitoring ports can be reached."
)
Node = Annotated[str, option("BROKER", "Broker whose copy is kept.", show_default=False)]


@command(recover, "stream")
async def recover_stream(
    site: Site,
    stream: Annotated[str, argument("STREAM", "Name of the stream on the brokers.")],
    node: Node = "",
    accept_last_seq: Annotated[int | None, option("S", "Refuse a copy whose last sequence is lower.")] = None,
    dry_run: DryRun = False,
    super_cluster: OfSuperCluster = "",
    output: TextOutput = "text",
) -> int:
    """Recover a stream from the copy of one broker."""
    from supercluster.app.admin import BrokerAdmin
    from supercluster.app.commands import recover_stream

    if node and accept_last_seq is None:
        raise typer.BadParameter("--node needs --accept-last-seq: the last sequence that its copy must have")
    wish = recover_stream.Wish(stream, node, accept_last_seq or 0, dry_run, super_cluster)
    target = await recover_stream.find(site.kube, site.namespace, super_cluster)
    async with BrokerAdmin() as admin:
        return _end(await recover_stream.recover(admin, target, wish), output)


@command(recover)
async def meta(
    site: Site,
    node: Node = "",
    accept_last_index: Annotated[
        int | None, option("N", "Refuse a copy whose last entry has a lower index.")
    ] = None,
    accept_doubtful: Annotated[
        bool, flag("accept-doubtful", "Accept a copy that may lack its last moments.")
    ] = False,
    follow: Annotated[
        str,
        option(
            "LINEAGE",
            "Where both sides of a partition were recovered: have --node give up its lineage for this one.",
            show_default=False,
        ),
    ] = "",
    dry_run: DryRun = False,
    super_cluster: OfSuperCluster = "",
    output: TextOutput = "text",
) -> int:
    """Recover the map of streams of a super-cluster from the copy of one broker."""
    from supercluster.app.admin import BrokerAdmin
    from supercluster.app.commands import recover_map, recover_stream

    if node and accept_last_index is None and not follow:
        raise typer.BadParameter(
            "--node needs --accept-last-index, the last entry that its copy must have, or --follow"
        )
    wish = recover_map.MapWish(node, accept_last_index or 0, dry_run, accept_doubtful, follow)
    target, monitors = await recover_stream.find_all(site.kube, site.namespace, super_cluster)
    async with BrokerAdmin() as admin:
        return _end(await recover_map.recover_map(admin, target, monitors, wish), output)


def _end(outcome: Outcome, output: str) -> int:
    print(json.dumps(outcome.told, indent=2) if output == "json" else outcome.text)
    return EXIT_OK if outcome.is_possible else EXIT_FAILED
