"""`supercluster plan`, `move`, `replica`, `moves` and `cancel-move`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from supercluster.app.cli.completion import names
from supercluster.app.cli.options import DryRun, Output, TextOutput, argument, flag, option, seconds, size
from supercluster.app.cli.session import Site, say
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_NOT_READY, EXIT_OK, NotReadyError

if TYPE_CHECKING:
    from supercluster.api import StreamMove

StreamName = Annotated[
    str,
    argument(
        "STREAM",
        "Name of the Stream, or of a stream that no resource declares.",
        autocompletion=names("Stream"),
    ),
]
Destination = Annotated[str, option("CLUSTER", "Name of the Cluster.", autocompletion=names("Cluster"))]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of `supercluster plan`."""

    bytes_per_s: Annotated[
        str | None,
        option("N", "Limit for copying, such as 50Mi. Default: a share of the budget.", parser=size),
    ] = None
    super_cluster: Annotated[
        str | None,
        option("NAME", "SuperCluster of a stream that no resource declares. Default: the only one."),
    ] = None
    output: TextOutput = "text"
    timeout: Annotated[float, seconds("Limit for the wait.")] = 600.0


@dataclass(frozen=True, slots=True)
class Options(PlanOptions):
    """Options of `supercluster move`."""

    dry_run: DryRun = False
    wait: Annotated[bool, flag("wait", "Wait until the move has ended, and show its progress.")] = False

    def __post_init__(self) -> None:
        if self.output == "json" and not (self.wait or self.dry_run):
            raise typer.BadParameter("-o json needs --wait or --dry-run")


async def plan(site: Site, stream: StreamName, to: Destination, options: PlanOptions) -> int:
    """Show what a move of a stream would do: brokers and reasons, bytes, time, quorum.

    The same as `move --dry-run`.
    """
    fields = {key: getattr(options, key) for key in PlanOptions.__dataclass_fields__}
    return await move(site, stream, to, Options(**fields, dry_run=True))


async def move(
    site: Site,
    stream: StreamName,
    to: Destination,
    options: Options,
) -> int:
    """Move a stream to another cluster.

    A stream that a Stream resource declares is moved by a change of its placement, another one by a StreamMove.
    """
    from supercluster.app.commands import moves

    wish = moves.Wish(stream, to, options.super_cluster, options.bytes_per_s, options.dry_run)
    return await _follow(site, await moves.ask(site.kube, site.namespace, wish), options, stream)


async def replica(
    site: Site,
    action: Annotated[Literal["add", "remove"], argument("ACTION", "Add a replica, or remove one.")],
    stream: StreamName,
    broker: Annotated[str, argument("BROKER", "Name of the broker.")],
    options: Options,
) -> int:
    """Add a replica of a stream on a broker, or remove one.

    The stream's count of replicas stays as it is. Fewer replicas than the count, or than the minimum of usable ones, are refused. A
    ReplicaPolicy with autoRemove BeyondTarget removes replicas beyond the count again.
    """
    from supercluster.app.commands import moves

    wish = moves.ReplicaWish(
        stream, broker, action == "add", options.super_cluster, options.bytes_per_s, options.dry_run
    )
    return await _follow(site, await moves.ask_for_replica(site.kube, site.namespace, wish), options)


async def _follow(site: Site, asked: tuple[str, str], options: Options, placed: str = "") -> int:
    """Say what was asked for, and how it goes, as far as the command line wants to know."""
    from supercluster.app.commands import moves

    name, said = asked
    is_json = options.output == "json"
    if not options.dry_run:
        say(said) if is_json else print(said, flush=True)
    if not name or not (options.wait or options.dry_run):
        return EXIT_OK
    try:
        found = await moves.watch(site.kube, site.namespace, name, options.timeout, say, placed)
        return _ended(found, name, options)
    finally:
        if options.dry_run:
            await moves.forget(site.kube, site.namespace, name)


def _ended(found: StreamMove | None, name: str, options: Options) -> int:
    """Show a plan, or a move that is not waited for any longer; the exit code."""
    from supercluster.app.commands import moves

    if found is None:
        raise NotReadyError(f"StreamMove {name} did not end within {options.timeout:g} s")
    phase = found.status.phase
    if options.output == "json":
        print(json.dumps(found.to_object(), indent=2))
    elif options.dry_run:
        print(moves.described(found))
    if options.dry_run:
        return EXIT_OK if phase == "Planned" else EXIT_FAILED
    if phase in ("AwaitingApproval", "AwaitingWindow"):
        return EXIT_NOT_READY
    return EXIT_OK if phase == "Succeeded" else EXIT_FAILED


async def moves(site: Site, output: Output = "table") -> None:
    """List moves and their progress."""
    from supercluster.app.commands import moves

    found = await moves.fetch(site.kube, site.namespace)
    if output == "json":
        print(json.dumps(found, indent=2))
    elif found:
        print(moves.table(found))
    else:
        say(f"no moves in namespace {site.namespace}")


async def cancel_move(
    site: Site,
    name: Annotated[str, argument("MOVE", "Name of the StreamMove.", autocompletion=names("StreamMove"))],
) -> None:
    """Cancel a move. Until the hand-over, the stream stays with its old brokers."""
    from supercluster.app.commands import moves

    print(await moves.cancel(site.kube, site.namespace, name))
