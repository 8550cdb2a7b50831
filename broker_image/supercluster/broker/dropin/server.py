"""One run of a drop-in server: its start, its log lines, its signals and its end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

from supercluster.broker.dropin.account_options import JetStreamLimits
from supercluster.broker.dropin.conf import ConfError
from supercluster.broker.dropin.credentials import DropInCredentials
from supercluster.broker.dropin.flags import FlagError, Flags
from supercluster.broker.dropin.options import Options
from supercluster.broker.dropin.process_settings import name_of, place_of, reachable, settings_of
from supercluster.broker.dropin.startup_options import StartError, load
from supercluster.broker.monitor.admin_calls import Answer, CoreCall, ask_core
from supercluster.broker.net.listen_address import shown
from supercluster.broker.raft.errors import DiskError
from supercluster.broker.runtime.collector import Collector
from supercluster.broker.runtime.process import BrokerProcess
from supercluster.broker.runtime.process_core import make_core
from supercluster.broker.settings import reload
from supercluster.broker.settings.settings import SettingsError
from supercluster.broker.version import NATS_VERSION, VERSION

log = logging.getLogger(__name__)

PROGRAM = "supercluster-broker"
EXIT_CLEAN = 0
EXIT_FAILED = 1
ACCOUNT_TRIES = 50
ACCOUNT_RETRY_S = 0.1

_PLAIN = ("account_limits", "listen", "monitor", "monitor_tls", "websocket", "log_file", "has_headers")
_AT_A_START = {
    "jetstream": attrgetter("jetstream.enabled"),
    "domain": attrgetter("jetstream.domain"),
    "store_dir": attrgetter("jetstream.store_dir"),
    **{name: attrgetter(name) for name in _PLAIN},
}
"""Options that a running server does not take over, beside those that are settings."""


class Server:
    """One run of the process."""

    def __init__(self, given: Flags, wanted: Options) -> None:
        self._given = given
        self._options = wanted
        self._leaving = False
        self._hurried = asyncio.Event()
        """Asked to stop while it was a lame duck."""
        self._ports_file: Path | None = None
        self._declaring: asyncio.Task[None] | None = None

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
            data_dir = Path(wanted.jetstream.store_dir) / "supercluster"
            name = name_of(wanted, data_dir)
            log.info("  Name:     %s", name)
            collector = Collector()
            self._credentials = DropInCredentials(wanted)
            process = self._process = BrokerProcess(
                settings_of(wanted, name),
                place_of(wanted, name, data_dir, Path(self._given.values.get("config", ""))),
                make_core if wanted.jetstream.enabled else None,
                collector,
                self._credentials,
            )
            collector.begin(process.clock.monotonic_ms())
            loop.add_signal_handler(signal.SIGHUP, self._read_again)
            loop.add_signal_handler(
                signal.SIGUSR1, lambda: log.info("log files are begun anew by themselves")
            )
            await self._serve(process)
        except (StartError, DiskError, SettingsError) as error:
            log.critical("%s", error)
            return EXIT_FAILED
        except OSError as error:
            log.critical("%s", error)
            return EXIT_FAILED
        finally:
            for file in (self._ports_file, Path(wanted.pid_file) if wanted.pid_file else None):
                if file is not None:
                    file.unlink(missing_ok=True)
            if self._declaring is not None:
                self._declaring.cancel()
            if process is not None:
                await process.stop()
        log.info("Server Exiting..")
        return EXIT_FAILED if process.failure.done() else EXIT_CLEAN

    async def _serve(self, process: BrokerProcess) -> None:
        wanted = self._options
        await process.start()
        if process.place.is_alone:
            await self._declare_accounts(process)
        else:
            # Who leads the map may be found only when the other servers have come.
            self._declaring = asyncio.create_task(self._declare_accounts(process))
        if wanted.pid_file:
            Path(wanted.pid_file).write_text(str(os.getpid()), encoding="ascii")
        if wanted.ports_file_dir:
            self._write_ports(process, Path(wanted.ports_file_dir))
        if process.cluster_port:
            log.info(
                "Listening for route connections on %s", shown(wanted.cluster.host, process.cluster_port)
            )
        if process.gateway_port:
            log.info("Gateway name is %s", wanted.gateway.name)
            at = shown(wanted.gateway.host, process.gateway_port)
            log.info("Listening for gateways connections on %s", at)
        if process.websocket_port:
            scheme = "wss" if process.settings.websocket_tls is not None else "ws"
            at = shown(wanted.websocket.host, process.websocket_port)
            log.info("Listening for websocket clients on %s://%s", scheme, at)
        if process.monitor_port:
            scheme = "https" if wanted.monitor_tls is not None else "http"
            at = shown(wanted.monitor.host or wanted.listen.host, process.monitor_port)
            log.info("Starting %s monitor on %s", scheme, at)
        log.info("Listening for client connections on %s", shown(wanted.listen.host, process.client_port))
        log.info("Server is ready")
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((stopping, asyncio.shield(process.failure)), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._leaving and not process.failure.done():
            log.info("Entering lame duck mode, stop accepting new clients")
            leaving = asyncio.ensure_future(process.lame_duck())
            hurried = asyncio.ensure_future(self._hurried.wait())
            try:
                await asyncio.wait((leaving, hurried), return_when=asyncio.FIRST_COMPLETED)
                if leaving.done():
                    leaving.result()
            finally:
                leaving.cancel()
                hurried.cancel()

    async def _declare_accounts(self, process: BrokerProcess) -> None:
        """Limits of accounts are in the map of streams, as everywhere.

        Raises:
            StartError: they could not be declared.
        """
        if process.core is None:
            return
        ask = partial(ask_core, process.core, process.turn)
        for account, limits in self._options.account_limits:
            if limits is None:
                continue  # The book says so.
            status, answer = await _declare(ask, account, limits)
            while status == 503 and not process.place.is_alone:
                status, answer = await _declare(ask, account, limits)
            if status != 200 and not process.place.is_alone:
                log.error("account %s: its limits can't be declared: %s", account, answer.get("error"))
            elif status != 200:
                raise StartError(f"account {account}: its limits can't be declared: {answer.get('error')}")

    def _write_ports(self, process: BrokerProcess, directory: Path) -> None:
        host = self._options.listen.host
        scheme = "tls" if process.settings.client_tls is not None else "nats"
        told = {"nats": [f"{scheme}://{shown(reachable(host), process.client_port)}"]}
        if process.websocket_port:
            scheme = "wss" if process.settings.websocket_tls is not None else "ws"
            url = f"{scheme}://{shown(reachable(self._options.websocket.host), process.websocket_port)}"
            told["websocket"] = [url]
        if process.monitor_port:
            scheme = "https" if self._options.monitor_tls is not None else "http"
            told["monitoring"] = [
                f"{scheme}://{shown(reachable(self._options.monitor.host), process.monitor_port)}"
            ]
        if process.cluster_port:
            told["cluster"] = [f"nats://{shown(reachable(self._options.cluster.host), process.cluster_port)}"]
        self._ports_file = directory / f"{Path(sys.argv[0]).stem}_{os.getpid()}.ports"
        self._ports_file.write_text(json.dumps(told), encoding="ascii")

    def _stop(self, number: int) -> None:
        log.info("Trapped %s signal", signal.Signals(number).name)
        if self._leaving and not self._hurried.is_set():
            if number != signal.SIGUSR2:
                self._hurried.set()  # The rest of the time is not waited for.
            return
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
        found = process.settings.peers, process.settings.meta_voters
        wanted = replace(settings_of(changed, process.place.name), peers=found[0], meta_voters=found[1])
        later = list(reload.waiting(process.settings, wanted))
        later += [name for name, of in _AT_A_START.items() if of(changed) != of(self._options)]
        if later:
            log.warning("taken over at the next start: %s", ", ".join(dict.fromkeys(later)))
        process.take_over(reload.merged(process.settings, wanted))
        before = self._credentials.users
        self._credentials.replace(changed)
        if process.mesh is not None:
            process.mesh.credentials_changed()
        process.server.credentials_changed()  # Whoever shows nothing may be another user though all are the same.
        if self._credentials.users != before:
            process.server.push_info()
        process.server.web_rules = changed.web_rules
        logging.getLogger().setLevel(logging.DEBUG if changed.debug else logging.INFO)
        for warning in changed.warnings:
            log.warning("%s", warning)
        log.info("Reloaded server configuration")


async def _declare(
    ask: Callable[[CoreCall], Awaitable[Answer]], account: str, limits: JetStreamLimits
) -> Answer:
    """Status and answer of the call; asked again while nobody leads the map."""
    for _ in range(ACCOUNT_TRIES):
        found = await ask(lambda calls, then: calls.account("PUT", account, limits, then))
        if found[0] != 503:
            break
        await asyncio.sleep(ACCOUNT_RETRY_S)
    return found
