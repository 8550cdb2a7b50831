"""`supercluster migrate`: the cutover of a live super-cluster, blue, to another one, green, by a Migration resource."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from supercluster.app.cli.completion import names
from supercluster.app.cli.options import Output, argument, flag, option, seconds
from supercluster.app.cli.session import Site, command, say
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK, CommandError, NotReadyError

if TYPE_CHECKING:
    from supercluster.app.commands.migrate import Wish

migrate = typer.Typer(
    help="Migrate a live super-cluster, blue, to another one, green: streams, consumers and clients. Nothing is deleted on blue before "
    "finalize."
)
Name = Annotated[str, argument("NAME", "Name of the Migration.", autocompletion=names("Migration"))]


def _side(kind: str, which: str) -> Any:
    texts = {
        "": f"SuperCluster that is {which}, in this namespace.",
        "-url": f"Instead of --{which}: URL of a monitoring port of {which}; may be repeated.",
        "-secret": f"With --{which}-url: Secret of the type supercluster.dev/migration.",
        "-ca": f"With --{which}-url: Secret with ca.crt.",
    }
    metavar = "URL" if kind == "-url" else "NAME"
    return typer.Option(f"--{which}{kind}", metavar=metavar, help=texts[kind], show_default=False)


@dataclass(frozen=True, slots=True)
class Options:
    """What a Migration is made of."""

    name: Name
    blue: Annotated[str | None, _side("", "blue")] = None
    blue_url: Annotated[list[str] | None, _side("-url", "blue")] = None
    blue_secret: Annotated[str | None, _side("-secret", "blue")] = None
    blue_ca: Annotated[str | None, _side("-ca", "blue")] = None
    green: Annotated[str | None, _side("", "green")] = None
    green_url: Annotated[list[str] | None, _side("-url", "green")] = None
    green_secret: Annotated[str | None, _side("-secret", "green")] = None
    green_ca: Annotated[str | None, _side("-ca", "green")] = None
    account: Annotated[str | None, option("NAME", "Account whose streams go. Default: all.")] = None
    cluster: Annotated[
        list[str] | None,
        option("BLUE=GREEN", "A cluster of blue, and its name on green; may be repeated."),
    ] = None
    cannot_follow: Annotated[
        Literal["Refuse", "Bridge"],
        typer.Option(help="Clients that cannot be redirected: refuse to start, or pass their messages on."),
    ] = "Refuse"

    def wish(self, *, waits_for_approval: bool) -> Wish:
        from supercluster.app.commands import migrate

        blue = migrate.side("blue", self.blue, self.blue_url or [], self.blue_secret, self.blue_ca)
        green = migrate.side("green", self.green, self.green_url or [], self.green_secret, self.green_ca)
        names = migrate.cluster_names(self.cluster or ())
        return migrate.Wish(
            self.name, blue, green, self.account, self.cannot_follow, names, waits_for_approval
        )


@command(migrate)
async def plan(
    site: Site,
    options: Options,
    timeout: Annotated[float, seconds("Limit until both sides are checked.")] = 60.0,
) -> None:
    """Check both sides, and start nothing before `migrate approve`."""
    from supercluster.app.commands import migrate

    name = options.name
    await migrate.create(site.kube, site.namespace, options.wish(waits_for_approval=True))
    found = await migrate.watch(site.kube, site.namespace, name, migrate.is_reported, timeout, say)
    print("\n".join(migrate.report(found)))
    if found.status.phase != "AwaitingApproval":
        raise CommandError(f"Migration {name}: {found.status.message}")
    say(f"`supercluster migrate approve {name}` starts it; `kubectl delete migration {name}` forgets it")


@command(migrate)
async def start(
    site: Site,
    options: Options,
    wait: Annotated[bool, flag("wait", "Wait until green serves everything.")] = False,
    timeout: Annotated[float, seconds("Limit for --wait.")] = 600.0,
) -> int:
    """Check both sides, and start."""
    from supercluster.app.commands import migrate

    print(await migrate.create(site.kube, site.namespace, options.wish(waits_for_approval=False)), flush=True)
    if not wait:
        return EXIT_OK
    found = await migrate.watch(site.kube, site.namespace, options.name, migrate.is_over, timeout, say)
    print(migrate.described(found))
    return EXIT_OK if found.status.phase in migrate.ARRIVED else EXIT_FAILED


@command(migrate)
async def status(
    site: Site,
    name: Annotated[
        str | None,
        argument("NAME", "Name of the Migration. Default: all.", autocompletion=names("Migration")),
    ] = None,
    output: Output = "table",
) -> None:
    """Show all migrations, or one with its stages."""
    from supercluster.app.commands import migrate

    if name:
        found = await migrate.find(site.kube, site.namespace, name)
        print(json.dumps(found.to_object(), indent=2) if output == "json" else migrate.described(found))
        return
    migrations = await migrate.fetch(site.kube, site.namespace)
    if output == "json":
        print(json.dumps(migrations, indent=2))
    elif migrations:
        print(migrate.table(migrations))
    else:
        say(f"no migrations in namespace {site.namespace}")


@command(migrate)
async def approve(site: Site, name: Name) -> None:
    """Start a migration that waits for approval."""
    await _set(site, name, "approved")


@command(migrate)
async def abort(site: Site, name: Name) -> None:
    """Go back to blue. Refused once green serves all streams."""
    await _set(site, name, "abort")


@command(migrate)
async def finalize(
    site: Site,
    name: Name,
    yes: Annotated[bool, flag("yes", "Do it. Without it, say what it means and do nothing.")] = False,
) -> None:
    """Pass the point of no return: blue's copies are deleted."""
    from supercluster.app.commands import migrate

    print(migrate.statement(await migrate.find(site.kube, site.namespace, name)))
    if not yes:
        raise NotReadyError(f"nothing was done; `migrate finalize {name} --yes` does it")
    await _set(site, name, "finalize")


async def _set(site: Site, name: str, field: str) -> None:
    from supercluster.app.commands import migrate

    print(await migrate.change(site.kube, site.namespace, name, **{field: True}))
