"""`supercluster-broker`: the command line of a broker."""

from __future__ import annotations

import argparse
import asyncio
import errno
import logging
import os
import signal
import sys
from collections.abc import Awaitable
from pathlib import Path

import uvloop

from supercluster.broker.auth.users import CredentialsError
from supercluster.broker.dropin import main as dropin_main
from supercluster.broker.migration.worlds import MARK
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.runtime import descriptors, entry_command, logs, salvage_command
from supercluster.broker.runtime.collector import Collector
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import make_core
from supercluster.broker.settings.place import Place
from supercluster.broker.settings.settings import Settings, SettingsError, load

log = logging.getLogger(__name__)

EXIT_CLEAN = 0
EXIT_UNEXPECTED = 1
EXIT_CONFIGURATION = 2
EXIT_ADDRESS_IN_USE = 3
EXIT_DISK = 4

_EPILOG = """\
environment:
  POD_NAME                 default of --name
  POD_IP                   default of --host and --advertise
  SUPERCLUSTER_HOSTS_FILE  default of --hosts-file

exit codes:
  0 clean stop   1 unexpected error   2 bad arguments or configuration   3 address in use   4 disk unusable

signals:
  TERM, INT   lame duck: clients are asked to leave, what they sent is committed, then a clean stop; a second one
              stops without waiting

inspecting a log:
  supercluster-broker entry DATA_DIR GROUP INDEX   show the entry at which a group halted (see its --help)
  supercluster-broker salvage DIR --out OUT        write what is readable of a lost copy as a backup

"""


def main(arguments: list[str] | None = None) -> int:
    """Run a broker until it is told to stop; returns the exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == [entry_command.NAME]:
        return entry_command.main(given[1:])
    if given[:1] == [salvage_command.NAME]:
        return salvage_command.main(given[1:])
    if not any(word.startswith("--data-dir") for word in given) and not {"-h", "--help"} & set(given):
        return dropin_main.main(given)
    options = _parser().parse_args(arguments)
    logs.set_up(options.log_level)
    descriptors.raise_limit()
    try:
        settings = load(options.config)
        place = _place(options)
    except SettingsError as error:
        return _say(str(error), EXIT_CONFIGURATION)
    return uvloop.run(_run(settings, place))


async def _run(settings: Settings, place: Place) -> int:
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    collector = Collector()
    process = BrokerProcess(settings, place, make_core, collector)
    collector.begin(process.clock.monotonic_ms())
    trouble: tuple[str, int] | None = None
    try:
        if await _unless(asked_to_stop, process.start()):
            await _unless(asked_to_stop, asyncio.shield(process.failure))
            if not process.failure.done():
                asked_to_stop.clear()
                await _unless(asked_to_stop, process.lame_duck())
    except (CredentialsError, SettingsError) as error:
        trouble = str(error), EXIT_CONFIGURATION
    except DiskError as error:
        trouble = f"the data directory {place.data_dir} can't be used: {error}", EXIT_DISK
    except OSError as error:
        taken = error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL)
        trouble = str(error), EXIT_ADDRESS_IN_USE if taken else EXIT_UNEXPECTED
    finally:
        await process.stop()
    if trouble is not None:
        # The last line of the log is what Kubernetes shows of a container that ended.
        return _say(*trouble)
    return EXIT_UNEXPECTED if process.failure.done() else EXIT_CLEAN


async def _unless(asked_to_stop: asyncio.Event, work: Awaitable[object]) -> bool:
    """Do the work unless it is asked to stop first: False then. What the work raises is raised."""
    doing = asyncio.ensure_future(work)
    waiting = asyncio.ensure_future(asked_to_stop.wait())
    try:
        await asyncio.wait((doing, waiting), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
        return doing.done()
    finally:
        doing.cancel()
        waiting.cancel()
        await asyncio.gather(doing, waiting, return_exceptions=True)


def _say(text: str, code: int) -> int:
    print(f"supercluster-broker: {text}", file=sys.stderr)
    return code


def _place(options: argparse.Namespace) -> Place:
    name = options.name
    if not name:
        raise SettingsError("the broker has no name; give --name or set POD_NAME")
    if MARK in name:
        raise SettingsError(
            f"--name is {name!r}; {MARK} is not allowed in it: it separates the names of a broker and its super-cluster"
        )
    host = options.host or "127.0.0.1"
    return Place(
        name=name,
        host=host,
        advertise=options.advertise or host,
        config=options.config,
        data_dir=options.data_dir,
        credentials_dir=options.credentials,
        hosts_file=options.hosts_file,
        tls_dir=options.tls_dir,
    )


def _parser() -> argparse.ArgumentParser:
    environment = os.environ
    parser = argparse.ArgumentParser(
        prog="supercluster-broker",
        description="A NATS-speaking broker of a super-cluster: clients, streams, links to the other brokers.",
        epilog=_EPILOG + dropin_main.USAGE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings (JSON)")
    parser.add_argument(
        "--data-dir", type=Path, required=True, metavar="DIR", help="where streams are stored"
    )
    parser.add_argument(
        "--name", default=environment.get("POD_NAME"), help="name of this broker, as in the settings' peers"
    )
    parser.add_argument(
        "--host", default=environment.get("POD_IP"), metavar="ADDR", help="address to bind (127.0.0.1)"
    )
    parser.add_argument(
        "--advertise",
        default=environment.get("POD_IP"),
        metavar="ADDR",
        help="host announced to clients and brokers (the address to bind)",
    )
    parser.add_argument(
        "--credentials",
        type=Path,
        metavar="DIR",
        help="directory with users.json, cluster.json, gateway.json, migration.json",
    )
    parser.add_argument(
        "--tls-dir",
        type=Path,
        default=Path(),
        metavar="DIR",
        help="directory of the certificates that the settings name by relative paths (the working directory)",
    )
    hosts_file = environment.get("SUPERCLUSTER_HOSTS_FILE")
    parser.add_argument(
        "--hosts-file",
        type=Path,
        default=Path(hosts_file) if hosts_file else None,
        metavar="FILE",
        help="a hosts(5) file that is asked before DNS",
    )
    parser.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        help="what is logged (info)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
