"""`supercluster apply`: manifests by server-side apply."""

from __future__ import annotations

import sys
from typing import Annotated

from supercluster.app.cli.options import Wait, flag, option, seconds
from supercluster.app.cli.session import Site
from supercluster.app.commands.errors import EXIT_FAILED, EXIT_OK, UsageError


async def apply(
    site: Site,
    filename: Annotated[
        list[str],
        option(
            "PATH",
            "File, folder (its .yaml, .yml and .json files), or - for standard input; may be repeated.",
            "-f",
            "--filename",
        ),
    ],
    force: Annotated[bool, flag("force", "Take over fields that another tool owns.")] = False,
    wait: Wait = False,
    timeout: Annotated[float, seconds("Limit for --wait.")] = 60.0,
) -> int:
    """Apply manifests (server-side apply)."""
    from supercluster.api import API_VERSION
    from supercluster.app.commands import manifests, overview
    from supercluster.reconcilers.ports import KubeError

    documents = manifests.read(filename, sys.stdin)
    if not documents:
        raise UsageError(f"no manifest in {', '.join(filename)}")
    applier = manifests.Applier(site.kube, site.namespace, force)
    failed = False
    for document in documents:
        try:
            print(f"{document.label} {await applier.apply(document)}", flush=True)
        except KubeError as error:
            failed = True
            print(manifests.fail(document, error), file=sys.stderr)
    if failed:
        return EXIT_FAILED
    if wait:
        ours = [document.body for document in documents if document.body["apiVersion"] == API_VERSION]
        names = {f"{body['kind']} {body['metadata']['name']}" for body in ours}
        namespaces = {body["metadata"].get("namespace", site.namespace) for body in ours}
        await overview.wait_until_ready(site.kube, namespaces, timeout, names)
    return EXIT_OK
