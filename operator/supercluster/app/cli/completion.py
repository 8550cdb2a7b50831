"""Names for shell completion, as the API server has them. It says nothing: whatever goes wrong, there are no names."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import typer

from supercluster.app.cli.session import Connection, connect

LIMIT_S = 1.0


def names(kind: str) -> Callable[[typer.Context], list[str]]:
    """A completion of the names of these resources, in the namespace that the words before say."""

    def complete(context: typer.Context) -> list[str]:
        chosen = Connection(
            **{key: context.params.get(key) for key in ("kubeconfig", "context", "namespace")}
        )
        try:
            return asyncio.run(_fetch(kind, chosen))
        except Exception:  # A shell shows whatever is printed in the middle of the user's line.
            return []

    return complete


async def _fetch(kind: str, chosen: Connection) -> list[str]:
    from supercluster.api import API_VERSION

    async with connect(chosen) as site, asyncio.timeout(LIMIT_S):
        found = await site.kube.list(API_VERSION, kind, site.namespace)
    return sorted(str(body["metadata"]["name"]) for body in found["items"])
