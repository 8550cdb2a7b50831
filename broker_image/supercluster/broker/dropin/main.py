"""`supercluster-broker` with nats-server's flags: one broker by itself, for those who start `nats-server` today."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvloop

from supercluster.broker.dropin import conf, flags, logs, options
from supercluster.broker.dropin.conf import ConfError
from supercluster.broker.dropin.credentials import NamedUsers
from supercluster.broker.dropin.flags import FlagError, Flags
from supercluster.broker.dropin.options import Address, JetStreamLimits, Options
from supercluster.broker.monitor.asking import ask_core
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.runtime import descriptors, reload
from supercluster.broker.runtime.collector import Collector
from supercluster.broker.runtime.jetstream import make_core
from supercluster.broker.runtime.process import BrokerProcess, Place
from supercluster.broker.runtime.settings import Limits, Ports, Settings, Storage
from supercluster.broker.version import NATS_VERSION, VERSION

log = logging.getLogger(__name__)

PROGRAM = "supercluster-broker"
EXIT_CLEAN = 0
EXIT_FAILED = 1
FILE_BYTES_MAX = 16 << 20
SUBSCRIPTIONS_MAX = 10_000_000
ACCOUNT_TRIES = 50
ACCOUNT_RETRY_S = 0.1

USAGE = """\
In nats-server's place, one broker by itself (without --data-dir):
  -a, --addr HOST          address to bind (0.0.0.0)         -p, --port PORT     clients' port (4222; -1: any)
  -n, --name NAME          name of the server                -m, --http_port N   monitoring port (none; -1: any)
  -c, --config FILE        nats-server's configuration       -t                  check it, and end
  -js, --jetstream         streams                           -sd, --store_dir D  where they are stored
  --user U --pass P        who may come in                   --auth TOKEN        the same by token
  -l, --log FILE           log file (stderr)                 -D, --debug         log more
  -P, --pid FILE           process id                        --ports_file_dir D  a file with the ports in use
  --cluster_name NAME      what INFO says                    --client_advertise  HOST:PORT for clients
  -sl, --signal S[=PID]    send stop, quit, term, reopen, reload or ldm to a server
Signals: INT, TERM stop; USR2 lame duck, then stop; HUP reads the configuration again; USR1 is for log files, which are begun
anew by themselves.
"""

_SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}


class StartError(Exception):
    """The server can't start; the text says why."""


def main(arguments: Sequence[str]) -> int:
    """Run a server until it is told to stop; returns the exit code."""
    try:
        given = flags.parse(arguments)
        if given.has("help"):
            print(USAGE, end="")
            return EXIT_CLEAN
        if given.has("version"):
            print(f"{PROGRAM}: v{VERSION} (NATS {NATS_VERSION})")
            return EXIT_CLEAN
        if "signal" in given.values:
            return _send(given.values["signal"])
        wanted = load(given, os.environ)
        if given.has("test"):
            print(f"{PROGRAM}: configuration file {given.values.get('config', '')} is valid", file=sys.stderr)
            return EXIT_CLEAN
        logs.set_up(debug=wanted.debug, file=wanted.log_file)
    except (FlagError, ConfError, StartError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_FAILED
    descriptors.raise_limit()
    return uvloop.run(_Server(given, wanted).run())


def load(given: Flags, environment: Mapping[str, str]) -> Options:
    """The options of the file, if one is named, and of the flags.

    Raises:
        ConfError: the file's text can't be used.
        FlagError: a flag can't.
        StartError: the file can't be read.
    """
    found = Options()
    if "config" in given.values:
        name = given.values["config"]
        try:
            text = _text(Path(name))
        except (OSError, UnicodeDecodeError) as error:
            raise StartError(f"configuration file {name} can't be read: {error}") from error
        found = options.read(conf.parse(text, name, read=_included, environment=environment))
    return flags.applied(given, found)


def _included(file: str, name: str) -> tuple[str, str]:
    path = Path(file).parent / name
    return str(path), _text(path)


def _text(path: Path) -> str:
    if path.stat().st_size > FILE_BYTES_MAX:
        raise OSError(errno.EFBIG, f"larger than {FILE_BYTES_MAX} bytes", str(path))
    return path.read_text(encoding="utf-8")


def _send(text: str) -> int:
    """Send a signal to another server, as `-sl reload=1234` or with the path of its pid file."""
    name, _, target = text.partition("=")
    if name not in _SIGNALS:
        raise FlagError(f"--signal {name!r}: it has to be one of {', '.join(_SIGNALS)}")
    if not target:
        raise FlagError(f"--signal {name} needs the process id, or the pid file: {name}=1234")
    try:
        pid = int(target if target.isdigit() else Path(target).read_text(encoding="ascii"))
        os.kill(pid, _SIGNALS[name])
    except (OSError, ValueError) as error:
        raise StartError(f"signal {name} can't be sent to {target}: {error}") from error
    return EXIT_CLEAN


# ---- from options to a broker -----------------------------------------------------------------------------------------


def settings_of(wanted: Options, name: str) -> Settings:
    """What the broker is told: it is a super-cluster of itself alone."""
    return Settings(
        super_cluster="nats",
        identity="nats",
        cluster=wanted.cluster_name or "default",
        peers={name: "127.0.0.1:1"},  # Its own, which nobody dials.
        meta_voters=(name,),
        ports=Ports(client=_kernel_port(wanted.listen), monitor=_kernel_port(wanted.monitor)),
        limits=Limits(
            max_payload_bytes=wanted.max_payload_bytes,
            max_control_line_bytes=wanted.max_control_line_bytes,
            max_connections=wanted.max_connections,
            max_subscriptions=wanted.max_subscriptions or SUBSCRIPTIONS_MAX,
            max_pending_bytes=wanted.max_pending_bytes,
            ping_interval_ms=wanted.ping_interval_ms,
            pings_out_max=wanted.pings_out_max,
            auth_timeout_ms=wanted.auth_timeout_ms,
            drain_ms=wanted.lame_duck_ms,
        ),
        storage=Storage(
            max_file_bytes=wanted.max_file_bytes,
            max_memory_bytes=wanted.max_memory_bytes,
            sync_interval_ms=wanted.sync_interval_ms,
        ),
        tags=wanted.tags,
    )


def _kernel_port(address: Address) -> int:
    return max(address.port, 0)


def name_of(wanted: Options, data_dir: Path) -> str:
    """The server's name: as wanted, or the one that its streams know it by.

    Raises:
        StartError: the streams in the directory are those of a server of another name.
        OSError: the directory can't be used.
    """
    if not wanted.jetstream:
        return wanted.server_name or _new_name()
    file = data_dir / "server_name"
    data_dir.mkdir(parents=True, exist_ok=True)
    with suppress(FileNotFoundError):
        held = file.read_text(encoding="utf-8").strip()
        if wanted.server_name and held != wanted.server_name:
            raise StartError(
                f"the streams in {data_dir} are those of server {held!r}: start it with --name {held}, or with another store_dir"
            )
        return held
    name = wanted.server_name or _new_name()
    file.write_text(name + "\n", encoding="utf-8")
    return name


def _new_name() -> str:
    return f"N{secrets.token_hex(16).upper()}"


class _Server:
    """One run of the process."""

    def __init__(self, given: Flags, wanted: Options) -> None:
        self._given = given
        self._options = wanted
        self._leaving = False
        self._ports_file: Path | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR2):
            loop.add_signal_handler(number, self._stop, number)
        wanted = self._options
        for warning in wanted.warnings:
            log.warning("%s", warning)
        log.info("Starting %s in nats-server's place", PROGRAM)
        log.info("  Version:  %s (NATS %s)", VERSION, NATS_VERSION)
        process: BrokerProcess | None = None
        try:
            data_dir = Path(wanted.store_dir) / "supercluster"
            name = name_of(wanted, data_dir)
            log.info("  Name:     %s", name)
            collector = Collector()
            self._credentials = NamedUsers(wanted)
            process = self._process = BrokerProcess(
                settings_of(wanted, name),
                self._place(name, data_dir),
                make_core if wanted.jetstream else None,
                collector,
                self._credentials,
            )
            collector.begin(process.clock.monotonic_ms())
            loop.add_signal_handler(signal.SIGHUP, self._read_again)
            loop.add_signal_handler(
                signal.SIGUSR1, lambda: log.info("log files are begun anew by themselves")
            )
            await self._serve(process)
        except (StartError, DiskError) as error:
            log.critical("%s", error)
            return EXIT_FAILED
        except OSError as error:
            log.critical("can't listen or write: %s", error)
            return EXIT_FAILED
        finally:
            for file in (self._ports_file, Path(wanted.pid_file) if wanted.pid_file else None):
                if file is not None:
                    file.unlink(missing_ok=True)
            if process is not None:
                await process.stop()
        log.info("Server Exiting..")
        return EXIT_FAILED if process.failure.done() else EXIT_CLEAN

    def _place(self, name: str, data_dir: Path) -> Place:
        wanted = self._options
        return Place(
            name=name,
            host=wanted.listen.host,
            advertise=wanted.client_advertise,
            config=Path(self._given.values.get("config", "")),
            data_dir=data_dir,
            monitor_host=wanted.monitor.host,
            is_alone=True,
            is_monitored=wanted.monitor.port != 0,
        )

    async def _serve(self, process: BrokerProcess) -> None:
        wanted = self._options
        await process.start()
        await self._declare_accounts(process)
        if wanted.pid_file:
            Path(wanted.pid_file).write_text(str(os.getpid()), encoding="ascii")
        if wanted.ports_file_dir:
            self._write_ports(process, Path(wanted.ports_file_dir))
        if process.monitor_port:
            log.info("Starting http monitor on %s:%d", wanted.monitor.host, process.monitor_port)
        log.info("Listening for client connections on %s:%d", wanted.listen.host, process.client_port)
        log.info("Server is ready")
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((stopping, asyncio.shield(process.failure)), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._leaving and not process.failure.done():
            log.info("Entering lame duck mode, stop accepting new clients")
            await process.lame_duck()

    async def _declare_accounts(self, process: BrokerProcess) -> None:
        """Limits of accounts are in the map of streams, as everywhere.

        Raises:
            StartError: they could not be declared.
        """
        if process.core is None:
            return
        for account, limits in self._options.account_limits:
            if limits is None:
                log.warning(
                    "account %s: streams are there for it, too; a broker has them for all accounts or none",
                    account,
                )
                continue
            status, answer = await self._declare(process, account, limits)
            if status != 200:
                raise StartError(f"account {account}: its limits can't be declared: {answer.get('error')}")

    async def _declare(
        self, process: BrokerProcess, account: str, limits: JetStreamLimits
    ) -> tuple[int, Any]:
        """Status and answer of the call; asked again while nobody leads the map."""
        body = _limits_json(limits)
        for _ in range(ACCOUNT_TRIES):
            found = await ask_core(process, lambda core, then: core.account_call("PUT", account, body, then))
            if found[0] != 503:
                break
            await asyncio.sleep(ACCOUNT_RETRY_S)
        return found

    def _write_ports(self, process: BrokerProcess, directory: Path) -> None:
        host = self._options.listen.host
        told = {"nats": [f"nats://{_reachable(host)}:{process.client_port}"]}
        if process.monitor_port:
            told["monitoring"] = [f"http://{_reachable(self._options.monitor.host)}:{process.monitor_port}"]
        self._ports_file = directory / f"{Path(sys.argv[0]).stem}_{os.getpid()}.ports"
        self._ports_file.write_text(json.dumps(told), encoding="ascii")

    def _stop(self, number: int) -> None:
        log.info("Trapped %s signal", signal.Signals(number).name)
        if self._stopping.is_set():
            os._exit(EXIT_FAILED)  # Asked twice: nothing is waited for.
        self._leaving = number == signal.SIGUSR2
        self._stopping.set()

    def _read_again(self) -> None:
        """SIGHUP: what a running server takes over of a changed file."""
        try:
            changed = load(self._given, os.environ)
        except (ConfError, FlagError, StartError) as error:
            log.error("Failed to reload server configuration: %s", error)
            return
        process = self._process
        wanted = settings_of(changed, process.place.name)
        later = list(reload.waiting(process.settings, wanted))
        later += [
            name
            for name in ("jetstream", "store_dir", "account_limits", "listen", "monitor", "log_file")
            if getattr(changed, name) != getattr(self._options, name)
        ]
        if later:
            log.warning("taken over at the next start: %s", ", ".join(dict.fromkeys(later)))
        process.take_over(reload.merged(process.settings, wanted))
        before = self._credentials.users
        self._credentials.replace(changed)
        if self._credentials.users != before:
            process.server.credentials_changed()
            process.server.push_info()
        logging.getLogger().setLevel(logging.DEBUG if changed.debug else logging.INFO)
        for warning in changed.warnings:
            log.warning("%s", warning)
        log.info("Reloaded server configuration")


def _limits_json(limits: JetStreamLimits) -> dict[str, int]:
    """As `/admin/accounts` takes them."""
    told = {
        "streamsMax": limits.streams,
        "consumersPerStreamMax": limits.consumers,
        "storageBytesMax": limits.file_bytes,
        "memoryBytesMax": limits.memory_bytes,
    }
    return {name: value for name, value in told.items() if value}


def _reachable(host: str) -> str:
    """An address that reaches a server which is bound to all of them."""
    return "127.0.0.1" if host in ("0.0.0.0", "::", "") else host
