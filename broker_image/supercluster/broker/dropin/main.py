"""`supercluster-broker` with nats-server's flags: a single broker as a drop-in replacement for `nats-server`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import uvloop

from supercluster.broker.dropin import flags, logs, signals
from supercluster.broker.dropin.conf import ConfError
from supercluster.broker.dropin.flags import FlagError
from supercluster.broker.dropin.server import EXIT_CLEAN, EXIT_FAILED, PROGRAM, Server
from supercluster.broker.dropin.signals import SignalError
from supercluster.broker.dropin.startup_options import StartError, load
from supercluster.broker.runtime import descriptors
from supercluster.broker.version import NATS_VERSION, VERSION

USAGE = """\
In nats-server's place, one broker by itself (without --data-dir):
  -a, --addr HOST          address to bind (0.0.0.0)         -p, --port PORT     clients' port (4222; -1: any)
  -n, --name NAME          name of the server                -m, --http_port N   monitoring port (none; -1: any)
  -ms, --https_port N      the same over TLS
  -c, --config FILE        nats-server's configuration       -t                  check it, and end
  -js, --jetstream         streams                           -sd, --store_dir D  where they are stored
  --user U --pass P        who may come in                   --auth TOKEN        the same by token
  --tls --tlscert F --tlskey F    TLS for clients            --tlsverify --tlscacert F   with certificates of theirs
  -l, --log FILE           log file (stderr)                 -D, --debug         log more
  -P, --pid FILE           process id                        --ports_file_dir D  a file with the ports in use
  --cluster_name NAME      what INFO says                    --client_advertise  HOST:PORT for clients
  --cluster_listen URL     for other servers of the cluster  --routes URL,URL    where they are
  -sl, --signal S[=PID]    send stop, quit, term, reopen, reload or ldm to a server: by process id, by pid file, by the
                           beginning of ids as in 12*, or to the only one that runs here
  -v, --version            the version of nats-server that clients are told
Signals: INT, TERM stop; USR2 lame duck, then stop; HUP reads the configuration again; USR1 is for log files, which are begun
anew by themselves.
"""


def main(arguments: Sequence[str]) -> int:
    """Run a server until it is told to stop; returns the exit code."""
    try:
        given = flags.parse(arguments)
        if given.has("help"):
            print(USAGE, end="")
            return EXIT_CLEAN
        if given.has("version"):
            print_version()
            return EXIT_CLEAN
        if "signal" in given.values:
            signals.send(given.values["signal"])
            return EXIT_CLEAN
        if given.has("test") and "config" not in given.values:
            raise FlagError("must specify [-c, --config] option to check configuration file syntax")
        wanted = load(given, os.environ)
        if given.has("test"):
            print(f"{PROGRAM}: configuration file {given.values.get('config', '')} is valid", file=sys.stderr)
            return EXIT_CLEAN
        logs.set_up(debug=wanted.debug, file=wanted.log_file)
    except (FlagError, ConfError, StartError, SignalError, OSError) as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_FAILED
    descriptors.raise_limit()
    return uvloop.run(Server(given, wanted).run())


def print_version() -> None:
    """To stdout what nats-server says, for scripts that read it; whose it is goes beside that, to stderr."""
    print(f"nats-server: v{NATS_VERSION}", flush=True)
    print(f"{PROGRAM} {VERSION}, in nats-server's place", file=sys.stderr)
