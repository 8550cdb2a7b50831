"""Asks some of a broker's clients to reconnect elsewhere, so that the brokers of a cluster have about as many
each (CL-7).

A client is asked as in lame duck mode: INFO with `ldm` and the other brokers, least loaded first, then FIN.
Its remaining input is accepted (SF-16). Only clients that lose nothing at that moment are asked. Excluded is
a client that waits for an acknowledgement or an API answer, whose messages wait for a full stream, or that
has unread output. The pace is bounded, and so is the time.

Many client libraries try their former broker again first, or one at random. So a client that connects (again)
while clients are being asked is asked first. Otherwise the longest connected go first, so that no client is
sent around.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from supercluster.broker.net.clients.client import Client
from supercluster.broker.net.clients.client_server import ClientServer
from supercluster.broker.net.clients.partings import Asked, answered_for
from supercluster.broker.settings.settings import camel

log = logging.getLogger(__name__)

PER_S = 20
PER_S_MAX = 1000
STEP_MS = 100
SCAN_MAX = 256
"""Clients looked at in one step."""

QUIET_WAIT_MS = 1000
"""As long only those go that neither sent nor were sent anything between two steps, or have just come."""

ASKED_MAX = 8
"""Times as many clients as are too many are asked at most: of those that choose at random some come back."""

PATIENCE_MS = 10_000
"""How much longer than the pace takes a run waits for clients that would lose something now."""

LINGER_MS = 1000
"""As long after the last one was asked it is seen whether somebody comes back."""


class CannotAskError(Exception):
    """Nobody can be asked to leave now; says why."""


@dataclass(slots=True)
class Run:
    """One request to let clients go, and how far it is."""

    wanted: int
    keep: int
    """Clients that stay."""
    per_s: int
    started_ms: int
    give_up_ms: int
    first_id: int
    """Clients from this one on came while the run was under way."""
    asked: int = 0
    """Who came back and was asked again counts again."""
    gone: int = 0
    cut_off: int = 0
    """Of those gone: did not close within the time that a lame duck waits, too."""
    busy: int = 0
    """Clients that could not be asked when they were last looked at."""
    why: str = ""
    """Why it ended before all were gone."""
    asked_ms: int = 0
    """When somebody was asked last."""
    cursor: int = 0
    """The last of the older clients that was looked at, while others come after it."""
    seen: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Client → bytes read from it and messages sent to it when it was looked at."""
    leaving: dict[int, int] = field(default_factory=dict)
    """Client → when it is cut off."""

    def to_json(self) -> dict[str, Any]:
        told = ("wanted", "keep", "per_s", "asked", "gone", "cut_off", "busy", "why")
        return {camel(name): getattr(self, name) for name in told}


class Rebalance:
    """At most one run at a time."""

    def __init__(self, server: ClientServer, awaiting: Asked) -> None:
        """`awaiting`: of these clients, whoever waits for an answer."""
        self._server = server
        self._awaiting = awaiting
        self._timer: asyncio.TimerHandle | None = None
        self.run: Run | None = None
        self.last: Run | None = None

    def begin(self, count: int, per_s: int = PER_S) -> Run:
        """Ask `count` clients to leave.

        Raises:
            CannotAskError: a run is under way, or there is no other broker to go to.
        """
        if self.run is not None:
            raise CannotAskError(f"{self.run.wanted} clients are being asked already")
        self._check_possible()
        now_ms, clients = self._server.clock.monotonic_ms(), self._server.clients
        give_up_ms = now_ms + ASKED_MAX * count * 1000 // per_s + PATIENCE_MS
        keep, newest = max(0, len(clients) - count), max(clients, default=0)
        self.run = Run(count, keep, per_s, now_ms, give_up_ms, newest + 1, asked_ms=now_ms)
        log.info("rebalancing: %d of %d clients are asked to leave", count, len(clients))
        self._step()
        return self.run

    def stop(self, why: str = "it was called off") -> None:
        """Ask nobody else; those who were asked go."""
        if self.run is not None and not self.run.why:
            self.run.why = why

    def close(self) -> None:
        """The process ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.run = None

    @property
    def movable(self) -> int:
        """Clients that understand being asked."""
        return sum(map(_understands, self._server.clients.values()))

    def _check_possible(self) -> None:
        if self._server.lame_duck:
            raise CannotAskError("the broker is leaving, and all clients were asked to go")
        if not self._server.others:
            raise CannotAskError("no other broker of the cluster is linked that clients could go to")

    def _step(self) -> None:
        self._timer = None
        run = self.run
        assert run is not None
        now_ms = self._server.clock.monotonic_ms()
        self._see_off(run, now_ms)
        too_many = len(self._server.clients) - len(run.leaving) - run.keep
        self._judge(run, too_many, now_ms)
        due = min(too_many, 1 + (now_ms - run.started_ms) * run.per_s // 1000 - run.asked)
        if due > 0 and not run.why:
            self._ask(run, due, now_ms)
        elif not run.leaving and (run.why or (too_many <= 0 and now_ms - run.asked_ms >= LINGER_MS)):
            log.info("rebalancing ended: %s", run.to_json())
            self.last, self.run = run, None
            return
        self._timer = self._server.loop.call_later(STEP_MS / 1000, self._step)

    def _judge(self, run: Run, too_many: int, now_ms: int) -> None:
        """Is there a reason to ask nobody else?"""
        try:
            self._check_possible()
        except CannotAskError as error:
            self.stop(str(error))
        if too_many > 0 and run.asked >= ASKED_MAX * run.wanted:
            self.stop(
                f"{run.asked} were asked, and so many came back that there are still {too_many} too many"
            )
        elif too_many > 0 and now_ms >= run.give_up_ms:
            self.stop(f"{too_many} surplus clients would lose messages, or do not support being asked")

    def _see_off(self, run: Run, now_ms: int) -> None:
        """Count who is gone; who does not close is cut off."""
        for number, until_ms in list(run.leaving.items()):
            client = self._server.clients.get(number)
            if client is not None and now_ms >= until_ms:
                client.close("asked to leave, and did not", tell=False)
                run.cut_off += 1
                client = None
            if client is None:
                del run.leaving[number]
                run.gone += 1

    def _ask(self, run: Run, due: int, now_ms: int) -> None:
        batch = self._batch(run)
        awaiting = answered_for({client: client.foreign.values() for client in batch}, self._awaiting)
        patient = now_ms - run.started_ms < QUIET_WAIT_MS
        run.busy = 0
        for client in batch:
            traffic = (client.read_bytes, client.subscriber.out_messages)
            quiet = run.seen.get(client.id) == traffic or client.id >= run.first_id
            run.seen[client.id] = traffic
            if client in awaiting or client.is_owed or (patient and not quiet):
                run.busy += 1
            elif due > 0:
                due -= 1
                run.asked += 1
                run.asked_ms = now_ms
                run.leaving[client.id] = now_ms + self._server.limits.drain_ms
                self._server.ask_to_leave(client)

    def _batch(self, run: Run) -> list[Client]:
        """Who came meanwhile, and the next of the others, the longest connected first, and around again."""
        able = [client for client in self._server.clients.values() if _understands(client)]
        came = [client for client in able if client.id >= run.first_id][:SCAN_MAX]
        older = (client for client in able if run.cursor < client.id < run.first_id)
        found = list(islice(older, SCAN_MAX))
        run.cursor = found[-1].id if len(found) == SCAN_MAX else 0
        return came + found


def _understands(client: Client) -> bool:
    return client.wants_info and client.authenticated and not client.closed and not client.is_leaving
