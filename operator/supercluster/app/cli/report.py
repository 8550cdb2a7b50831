"""`supercluster report`: a support bundle."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from supercluster.app.cli.options import seconds
from supercluster.app.cli.session import Site, say
from supercluster.app.commands.errors import CommandError


async def report(
    site: Site,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.tar.gz",
            help="Default: supercluster-report-TIME.tar.gz in this folder.",
        ),
    ] = None,
    timeout: Annotated[float, seconds("Limit for fetching everything.")] = 60.0,
) -> None:
    """Write a support bundle: resources, pods, events, logs and what brokers say, without secrets.

    Secrets and ConfigMaps are left out, and what Secrets hold is masked wherever else it stands. Read the bundle before you pass it on.
    """
    from supercluster.app.admin import BrokerAdmin
    from supercluster.app.commands import report

    path = output or Path(f"supercluster-report-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    state = site.kubeconfig.parent if site.kubeconfig is not None else None
    async with BrokerAdmin() as admin:
        bundle = await report.collect(site.kube, admin, site.namespace, state, timeout)
    if bundle.has_objects or any(name.startswith("logs/") for name in bundle.files):
        try:
            bundle.write(path)
        except OSError as error:
            raise CommandError(f"{path} can't be written: {error.strerror}") from error
        if not bundle.knows_values:
            say("Secrets can't be read, so their values are masked only where the text around them tells")
        if bundle.errors:
            say(f"missing parts: {len(bundle.errors)}; errors.txt in the bundle names them")
        print(path)
    if not bundle.has_objects:
        why = bundle.errors[0].partition(": ")[2]
        raise CommandError(f"no resource of namespace {site.namespace} can be fetched: {why}")
