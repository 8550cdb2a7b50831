"""`supercluster users`: Users of a super-cluster, and their credentials. No password and no seed is printed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated

import typer

from supercluster.app.cli.completion import names
from supercluster.app.cli.options import OfSuperCluster, Output, argument, flag, option, period, seconds
from supercluster.app.cli.session import Site, command, complain, say
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK, CommandError, NotReadyError

users = typer.Typer(
    help="Show Users, rotate their credentials, and list the clients that use them. No password and no seed is printed."
)
Name = Annotated[str, argument("NAME", "Name of the User.", autocompletion=names("User"))]


@command(users, "list")
async def list_users(
    site: Site,
    output: Output = "table",
    super_cluster: Annotated[
        str, option("NAME", "Only Users of this SuperCluster.", show_default=False)
    ] = "",
) -> None:
    """List Users with their credentials and rotations."""
    from supercluster.api import User
    from supercluster.app.commands.users import find, listing

    if super_cluster:
        await find.super_cluster_of(site.kube, site.namespace, super_cluster)
    found = await find.bodies(site.kube, site.namespace, super_cluster)
    if output == "json":
        print(json.dumps(found, indent=2))
    elif found:
        print(listing.table([User.model_validate(body) for body in found], datetime.now(UTC)))
    else:
        say(f"no Users in namespace {site.namespace}")


@command(users)
async def show(site: Site, name: Name) -> None:
    """Show a User: its credential, its rotation, and what to do next."""
    from supercluster.app.commands.users import find, listing

    print(listing.described(await find.find(site.kube, site.namespace, name), datetime.now(UTC)))


@command(users)
async def rotate(
    site: Site,
    name: Name,
    deadline_after: Annotated[
        str | None,
        option(
            "PERIOD",
            "Withdraw the former credential after this time, such as 24h or 7d, even if clients still use it. Later rotations keep "
            "the setting.",
            parser=period,
        ),
    ] = None,
    cancel: Annotated[
        bool,
        flag("cancel", "Instead: take the rotation back, and begin none before --resume."),
    ] = False,
    suspend: Annotated[
        bool, flag("suspend", "Instead: hold the rotation, and begin none before --resume.")
    ] = False,
    resume: Annotated[bool, flag("resume", "Instead: end what --cancel or --suspend began.")] = False,
    wait: Annotated[
        bool, flag("wait", "Wait until no rotation is under way, and show its progress.")
    ] = False,
    timeout: Annotated[float, seconds("Limit for --wait.")] = 600.0,
) -> int:
    """Rotate the credential of a User, hold the rotation, or take it back.

    Clients find the new credential in the Secret of the User as soon as every broker accepts it. The former one is withdrawn when no
    client uses it any more, or at a deadline. A rotation is refused while another one is under way, suspended or cancelled, and while the
    User is not Ready.
    """
    from supercluster.api.conditions import ConditionType
    from supercluster.app.commands.users import find, listing, rotation

    if sum((deadline_after is not None, cancel, suspend, resume)) > 1:
        raise typer.BadParameter("give one of --deadline-after, --cancel, --suspend and --resume")
    if suspend and wait:
        raise typer.BadParameter("--suspend holds the rotation, so there is no end for --wait")
    replaced = None
    if cancel or suspend or resume:
        act = rotation.cancel if cancel else rotation.suspend if suspend else rotation.resume
        print(await act(site.kube, site.namespace, name), flush=True)
    else:
        before, said = await rotation.rotate(site.kube, site.namespace, name, deadline_after)
        replaced = before.status.credential
        print(said, flush=True)
        if not find.has(before, ConditionType.WHOLE, "True"):
            say(f"it will wait for a broker: {find.message_of(before, ConditionType.WHOLE)}")
    if not wait:
        return EXIT_OK
    ended = await rotation.follow(site.kube, site.namespace, name, replaced, timeout, say)
    if ended is None:
        print(listing.described(await find.find(site.kube, site.namespace, name), datetime.now(UTC)))
        raise NotReadyError(f"the rotation of User {name} did not end within {timeout:g} s")
    if not ended.is_done:
        raise CommandError(f"User {name}: {ended.text}")
    print(f"user/{name}: {ended.text}")
    return EXIT_OK


@command(users)
async def who_uses(
    site: Site,
    name: Name,
    shows_all: Annotated[bool, flag("all", "List credentials without clients, too.")] = False,
) -> int:
    """List the clients that use a credential of a User, by broker.

    Brokers that do not answer are named, and the exit code is 1 then. Run it where the brokers' monitoring ports can be reached.
    """
    from supercluster.app.admin import BrokerAdmin
    from supercluster.app.commands.users import connections, find

    user = await find.find(site.kube, site.namespace, name)
    asked = await connections.prepare(site.kube, site.namespace, user)
    async with BrokerAdmin() as admin:
        answers = await connections.ask(admin, asked)
    print(connections.described(asked, answers, shows_all=shows_all))
    for text in connections.silence(answers):
        complain(text)
    return EXIT_FAILED if answers.silent else EXIT_OK


@command(users)
async def adopt(site: Site, super_cluster: OfSuperCluster = "") -> None:
    """Print the manifests of Users that take over the users in users.json.

    These users were written by hand. Account, permissions and limits stay as they are. `kubectl apply -f -` carries it out. Users that
    cannot be taken over are named on standard error.
    """
    from supercluster.app.commands.users import adoption, find

    name = await find.super_cluster_of(site.kube, site.namespace, super_cluster)
    found = await adoption.prepare(
        site.kube, site.namespace, name, await find.bodies(site.kube, site.namespace)
    )
    if found.manifests:
        print(found.text(), end="")
    for text in found.remarks:
        say(text)
    if not found.manifests:
        say(f"users.json of SuperCluster {name} has no user that a User could take over")
