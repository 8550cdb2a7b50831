"""`python -m supercluster.localplane --state DIR`: run the embedded control plane until SIGTERM or SIGINT.

SUPERCLUSTER_KUBE_ASSETS names a folder with Kubernetes' own programs. If it is set, these are the control
plane, with the same simulated nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import errno
import os
import signal
import sys
from pathlib import Path

from supercluster.localplane.kubeplane import KubePlane, KubePlaneError
from supercluster.localplane.node.agent import StateInUse
from supercluster.localplane.plane import DirectoryInUseError, Plane

DEFAULT_NODES = 3
MAX_NODES = 100
EXIT_CODES = {KubePlaneError: 1, StateInUse: 3, DirectoryInUseError: 4}


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m supercluster.localplane",
        description="A Kubernetes API on loopback with controllers and simulated nodes whose pods are local processes."
        " For laptops and tests only: one process, no replication, no isolation between pods.",
        epilog="Exit codes: 0 clean stop, 1 unexpected error, 2 bad arguments, 3 the address or the node"
        " agent's state is in use, 4 another control plane runs on the directory.",
    )
    parser.add_argument(
        "--state", type=Path, required=True, help="directory for state, logs, kubeconfig and ready.json"
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (0: any free one)")
    parser.add_argument(
        "--nodes",
        type=int,
        default=DEFAULT_NODES,
        help=f"simulated nodes (default {DEFAULT_NODES}; 0: only the API, no controllers)",
    )
    parser.add_argument(
        "--kube-assets",
        type=Path,
        default=os.environ.get("SUPERCLUSTER_KUBE_ASSETS") or None,
        metavar="DIR",
        help="a folder with etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as setup-envtest makes it:"
        " they are the control plane then (default: $SUPERCLUSTER_KUBE_ASSETS)",
    )
    arguments = parser.parse_args(argv)
    if not 0 <= arguments.port <= 65535:
        parser.error(f"--port {arguments.port} is not between 0 and 65535")
    if not 0 <= arguments.nodes <= MAX_NODES:
        parser.error(f"--nodes {arguments.nodes} is not between 0 and {MAX_NODES}")
    return arguments


async def run(state_dir: Path, port: int, nodes: int, assets: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    plane = KubePlane(state_dir, nodes, assets.absolute()) if assets else Plane(state_dir, nodes)
    what = "Kubernetes' control plane with simulated nodes" if assets else "embedded control plane"
    try:
        await plane.start(port)
        print(
            f"{what} (for laptops and tests, not for production) ready at {plane.url}; "
            f"KUBECONFIG={plane.kubeconfig_path}",
            flush=True,
        )
        await stop.wait()
    finally:
        await plane.stop()


def main(argv: list[str] | None = None) -> int:
    arguments = _arguments(argv)
    try:
        asyncio.run(run(arguments.state.absolute(), arguments.port, arguments.nodes, arguments.kube_assets))
    except (KubePlaneError, StateInUse, DirectoryInUseError) as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_CODES[type(error)]
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        print(
            f"error: port {arguments.port} of 127.0.0.1 is in use; --port 0 takes a free one", file=sys.stderr
        )
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
