"""`supercluster status` and `explain`: the state of the resources, and of one Stream with its reasons."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from supercluster.app.cli.completion import names
from supercluster.app.cli.options import Output, TextOutput, Wait, argument, seconds
from supercluster.app.cli.session import Site, say


async def status(
    site: Site,
    all_namespaces: Annotated[
        bool, typer.Option("-A", "--all-namespaces", help="Show all namespaces.")
    ] = False,
    output: Output = "table",
    wait: Wait = False,
    timeout: Annotated[float, seconds("Limit for --wait.")] = 60.0,
) -> None:
    """Show the resources and their conditions."""
    from supercluster.app.commands import overview

    scope = None if all_namespaces else site.namespace
    if wait:
        await overview.wait_until_ready(site.kube, [scope], timeout)
    found = await overview.fetch(site.kube, scope)
    if output == "json":
        print(json.dumps(found, indent=2))
    elif any(found.values()):
        print(overview.table(found, with_namespace=scope is None))
    else:
        say(f"no resources in {'any namespace' if scope is None else f'namespace {scope}'}")


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
