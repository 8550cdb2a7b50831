"""`supercluster dev`: a Kubernetes API on this machine, for laptops and tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from supercluster.app.cli.options import flag, number, option, seconds
from supercluster.app.cli.session import finish, say
from supercluster.app.commands.errors import CommandError

dev = typer.Typer(
    help="Run a Kubernetes API on this machine, with the operator. Pods are local processes of your user. For laptops and tests only."
)
STATE = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "supercluster"
NODES_MAX = 100

State = Annotated[
    Path, option("DIR", "Folder of objects, volumes and logs.", show_default="in ~/.local/state/supercluster")
]


@dev.command()
def up(
    nodes: Annotated[
        int,
        option("N", "Simulated nodes.", parser=number(1, NODES_MAX, "a number of nodes")),
    ] = 3,
    port: Annotated[int, option("PORT", "Port of the API; 0: any.", parser=number(0, 65_535, "a port"))] = 0,
    no_operator: Annotated[bool, flag("no-operator", "Do not start the operator.")] = False,
    timeout: Annotated[float, seconds("Limit until everything is ready.")] = 60.0,
    state: State = STATE / "dev",
) -> None:
    """Start the API, install the definitions, start the operator."""
    from supercluster.app.commands import dev

    folder = dev.Folder(state.absolute())

    async def start() -> None:
        await dev.up(
            folder, nodes=nodes, port=port, with_operator=not no_operator, timeout_s=timeout, say=say
        )
        print(f"export KUBECONFIG={folder.kubeconfig}")

    finish(start())


@dev.command()
def down(state: State = STATE / "dev") -> None:
    """End what `dev up` started. Objects and volumes stay in the state folder."""
    from supercluster.app.commands import dev

    if not dev.down(dev.Folder(state.absolute()), say):
        say(f"nothing that was started in {state} is running")


@dev.command()
def node(
    kubeconfig: Annotated[str, option("FILE", "Kubeconfig of an administrator of the cluster.")],
    nodes: Annotated[
        int,
        option("N", "Nodes to register.", parser=number(1, NODES_MAX, "a number of nodes")),
    ] = 1,
    names: Annotated[str, option("PREFIX", "Names of the nodes, before a number.")] = "node",
    client_ca: Annotated[
        Path | None,
        option(
            "FILE",
            "Authority of the API server's certificate as a client of kubelets (its --kubelet-client-certificate), for "
            "`kubectl logs`.",
        ),
    ] = None,
    open_logs: Annotated[
        bool,
        flag(
            "open-logs",
            "Without --client-ca: let every process of this machine read logs, and `kubectl logs` work.",
        ),
    ] = False,
    state: State = STATE / "node",
) -> None:
    """Register nodes with any Kubernetes API server, and run their pods here as local processes.

    The API server has its own controllers and scheduler. Claims of the storage class `localplane` get volumes. The command runs until it
    is stopped, and its pods end with it. For laptops and tests only: pods are processes of your user, whatever their manifests say.
    """
    # The node agent imports much that no other command needs.
    from supercluster.localplane.node import program

    async def run() -> None:
        try:
            await program.run(kubeconfig, state.absolute(), nodes, names, client_ca, open_logs)
        except program.NodesRefusedError as error:
            raise CommandError(str(error)) from error

    finish(run())
