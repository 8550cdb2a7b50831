"""Write what a real kube-apiserver answers (`make kube-table KUBE_ASSETS=DIR RECORD=1`)."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from tests.localplane.kube_table import servers
from tests.localplane.kube_table.every import CASES, record


async def _answers() -> None:
    folder = servers.assets()
    if folder is None:
        sys.exit("KUBE_ASSETS names the folder with etcd, kube-apiserver and kube-controller-manager")
    with tempfile.TemporaryDirectory() as scratch:
        async with servers.real(folder, Path(scratch)) as bench:
            record(await bench.answers(list(CASES)))


if __name__ == "__main__":
    asyncio.run(_answers())
