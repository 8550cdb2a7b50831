"""`python -m e2e.demo`: a manifest becomes running brokers, flights go through them, the leader is killed, pipelines archive and audit."""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks.servers import FLEETS
from e2e.demo.brokers import Brokers, DirectBrokers
from e2e.demo.course import EXIT_CODES, Speaker, add_logs_argument, conduct
from e2e.demo.plane import PlaneBrokers


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m e2e.demo",
        description="From a manifest to Spark, with the stream's leader killed in the middle.",
        epilog=EXIT_CODES,
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave everything running and say how to reach it"
    )
    parser.add_argument(
        "--brokers",
        choices=("kubernetes", *FLEETS),
        default="kubernetes",
        help="where the brokers come from: manifests (default), or started directly, to look at the demo's own parts",
    )
    parser.add_argument(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="take every Nth flight of the data set, for a shorter run (default: all)",
    )
    add_logs_argument(parser)
    arguments = parser.parse_args()
    if arguments.every < 1:
        parser.error("--every takes 1 or more")
    if arguments.keep and arguments.brokers != "kubernetes":
        parser.error("--keep goes with --brokers kubernetes only")

    async def start(directory: Path, stack: ExitStack, say: Speaker) -> Brokers:
        if arguments.brokers == "kubernetes":
            say("starting the embedded control plane (for laptops and tests)")
            on_plane = PlaneBrokers(directory, stack, say, keep=arguments.keep)
            await on_plane.start()
            return on_plane
        say(f"starting three brokers without Kubernetes: {arguments.brokers}")
        direct = DirectBrokers(arguments.brokers, directory / "brokers", stack)
        await direct.create_stream()
        return direct

    return conduct(start, arguments.logs, keep=arguments.keep, every=arguments.every)


if __name__ == "__main__":
    sys.exit(main())
