"""Makes streams on blue, by JetStream's own API as applications do, and fills the one that has deleted messages."""

from __future__ import annotations

import time
from collections.abc import Iterable

from e2e.cutover.kinds import DELETED, PRELOADED, PRELOADED_MODE, Kind
from e2e.cutover.ledger import payload
from e2e.moves.publishers import READ_BYTES, dial, new_inbox
from e2e.moves.site import Site

PRELOAD_SECONDS = 60.0


def create_streams(blue: Site, kinds: Iterable[Kind]) -> None:
    """One after the other."""
    for kind in kinds:
        blue.session().ask(f"$JS.API.STREAM.CREATE.{kind.name}", kind.config)


def preload(blue: Site) -> None:
    """Fill AUDIT, and delete some of it.

    Raises:
        TimeoutError: answers stopped, or one was an error.
    """
    inbox = new_inbox()
    sock = dial(blue.url(blue.names[0]), blue.login, inbox)
    sock.settimeout(PRELOAD_SECONDS)
    deadline = time.monotonic() + PRELOAD_SECONDS
    try:
        for number in range(1, PRELOADED + 1):
            body = payload(PRELOADED_MODE, number)
            sock.sendall(b"PUB audit.old %b0 %d\r\n%b\r\n" % (inbox, len(body), body))
        said = b""
        while said.count(b'"seq":') < PRELOADED:
            data = sock.recv(READ_BYTES)
            said += data
            if not data or b'"error"' in said or time.monotonic() > deadline:
                raise TimeoutError(f"AUDIT can't be filled: {said[-300:]!r}")
    finally:
        sock.close()
    for sequence in sorted(DELETED):
        blue.session().ask("$JS.API.STREAM.MSG.DELETE.AUDIT", {"seq": sequence, "no_erase": True})
