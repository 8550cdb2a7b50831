"""`-sl SIGNAL[=TARGET]`: sends a signal to another server.

TARGET is a process id, the path of a pid file, or a prefix of process ids followed by a star. Without it the
target is the only drop-in server on this machine. Error texts are nats-server's.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

PROGRAM = "supercluster-broker"
MODULE = "supercluster.broker.main"
SIGNALS = {
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
    "ldm": signal.SIGUSR2,
}
PROCESSES = Path("/proc")
PID_FILE_BYTES_MAX = 64
_WITH_VALUE = ("-X", "-W", "--check-hash-based-pycs")
"""The interpreter's own options whose value is a word of its own."""
_NO_SERVER = ("--data-dir", "-sl", "--sl", "-signal", "--signal")
"""Words of a broker of a super-cluster, which has its own ways to stop, and of a process that sends a signal."""


class SignalError(Exception):
    """Nothing was sent, or not to all; the text says why."""


def send(
    text: str,
    running: Callable[[], Sequence[int]] | None = None,
    kill: Callable[[int, int], None] = os.kill,
) -> None:
    """Send what a `-sl` says. `running`: the servers that there are.

    Raises:
        SignalError: it can't be sent.
    """
    name, *targets = text.split("=")
    if name not in SIGNALS:
        raise SignalError(f'unknown signal "{name}"; it has to be one of {", ".join(SIGNALS)}')
    if len(targets) > 1:
        raise SignalError(f"invalid signal parameters: {targets[1:]}")
    failures = []
    for pid in _targets("".join(targets), running or servers):
        try:
            kill(pid, SIGNALS[name])
        except OSError as error:
            failures.append(f'signal "{name}" {pid}: {(error.strerror or str(error)).lower()}')
    if failures:
        raise SignalError("\n".join(failures))


def _targets(target: str, running: Callable[[], Sequence[int]]) -> Sequence[int]:
    begin = target.removesuffix("*")
    if target and begin == target:
        return [_pid(target if target.isdecimal() else _pid_file(target))]
    if begin and not begin.isdecimal():
        raise SignalError(f"invalid pid: {begin}")
    found = [pid for pid in running() if str(pid).startswith(begin)]
    if not found:
        raise SignalError(f"no {PROGRAM} processes running" + (f" with {target}" if begin else ""))
    if len(found) > 1 and not target:
        raise SignalError("\n".join((f"multiple {PROGRAM} processes running:", *map(str, found))))
    return found


def _pid_file(target: str) -> str:
    try:
        with Path(target).open("rb") as file:
            return file.read(PID_FILE_BYTES_MAX).decode("ascii").strip()
    except (OSError, ValueError):
        return target


def _pid(text: str) -> int:
    """Zero and what is below it would be all processes of a group."""
    if not text.isdecimal() or int(text) == 0:
        raise SignalError(f"invalid pid: {text}")
    return int(text)


def servers(processes: Path = PROCESSES, own: int | None = None) -> list[int]:
    """The servers that run here in nats-server's place, but for this process.

    Raises:
        SignalError: this system does not tell.
    """
    own = os.getpid() if own is None else own
    found = []
    try:
        entries = sorted(int(entry.name) for entry in processes.iterdir() if entry.name.isdecimal())
    except OSError:
        raise SignalError("unable to resolve pid, try providing one") from None
    for pid in entries:
        try:
            told = (processes / str(pid) / "cmdline").read_bytes()
        except OSError:
            continue  # It is gone, or another user's.
        words = [word.decode(errors="replace") for word in told.split(b"\0")]
        if pid != own and is_server(words):
            found.append(pid)
    return found


def is_server(words: Sequence[str]) -> bool:
    """Is this the command line of a server in nats-server's place? What only names one, as an editor or a shell, is none."""
    if not Path(words[0]).name.startswith("python"):
        return False
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c", "-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    is_ours = tuple(words[at : at + 2]) == ("-m", MODULE) or (
        at < len(words) and Path(words[at]).name == PROGRAM
    )
    return is_ours and not any(word.partition("=")[0] in _NO_SERVER for word in words[at:])
