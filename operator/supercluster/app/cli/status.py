"""`supercluster status` and `explain`: the state of the resources, and of one Stream with its reasons."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import Annotated

import typer

from supercluster.app.cli.completion import names
from supercluster.app.cli.options import Output, TextOutput, Wait, argument, flag, seconds
from supercluster.app.cli.session import Site, say

WATCH_INTERVAL_S = 1.0


async def status(
    site: Site,
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Show all namespaces.")
    ] = False,
    output: Output = "table",
    wait: Wait = False,
    timeout: Annotated[float, seconds("Limit for --wait.")] = 60.0,
    watch: Annotated[bool, flag("watch", "Show a tree, and keep it up to date until Ctrl-C.")] = False,
) -> None:
    """Show the resources and their conditions."""
    from supercluster.app.commands import overview

    if watch and (output == "json" or wait):
        raise typer.BadParameter("--watch goes with neither -o json nor --wait")
    scope = None if all_namespaces else site.namespace
    if watch:
        await _watch(site, scope)
        return
    if wait:
        await overview.wait_until_ready(site.kube, [scope], timeout)
    found = await overview.fetch(site.kube, scope)
    if output == "json":
        print(json.dumps(found, indent=2))
    elif any(found.values()):
        print(overview.table(found, with_namespace=scope is None))
    else:
        say(f"no resources in {'any namespace' if scope is None else f'namespace {scope}'}")
    there = (str(body["metadata"].get("namespace", "")) for bodies in found.values() for body in bodies)
    for sentence in await overview.away(site.kube, there):
        say(sentence)


async def _watch(site: Site, scope: str | None) -> None:
    """A terminal shows one tree, which changes. Anything else gets another tree when something has changed.

    While the API server does not answer, the last tree stays, with a line that says since when.
    """
    from rich.console import Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    from supercluster.app.commands import overview, tables, tree
    from supercluster.reconcilers.ports import KubeError

    found: RenderableType = ""
    shown, silence, screen = "", "", tables.console()
    with suppress(asyncio.CancelledError), ExitStack() as stack:  # Ctrl-C ends it, as a user means it to.
        live = stack.enter_context(Live(console=screen, auto_refresh=False)) if screen.is_terminal else None
        while True:
            asked_at = time.strftime("%H:%M:%S")
            try:
                found = tree.tree(await overview.fetch(site.kube, scope), with_namespace=scope is None)
                silence = ""
            except KubeError as error:
                if 400 <= error.status < 500 and error.status != HTTPStatus.TOO_MANY_REQUESTS:
                    raise
                silence = silence or f"no answer from the API server since {asked_at}"
            if live is not None:
                live.update(Group(found, Text(silence, "bold red")) if silence else found, refresh=True)
            elif (text := silence or tables.rendered(found)) != shown:
                print(text, file=sys.stderr if silence else sys.stdout, flush=True)
                shown = text
            await asyncio.sleep(WATCH_INTERVAL_S)


async def explain(
    site: Site,
    stream: Annotated[str, argument("STREAM", "Name of the Stream.", autocompletion=names("Stream"))],
    output: TextOutput = "text",
) -> None:
    """Say why a stream is where it is: its conditions, and the reason for each broker that was rejected."""
    from supercluster.app.commands import explanation

    body = await explanation.find(site.kube, site.namespace, stream)
    if output == "json":
        print(json.dumps(explanation.facts(body), indent=2))
    else:
        print(explanation.text_of(body))
