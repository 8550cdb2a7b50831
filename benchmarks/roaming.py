"""Publishers that go to another broker when theirs lets them go, in every mode, as NATS's own clients do.

A broker that leaves sends FIN and reads on (SF-16): what was written before is delivered, so a publisher writes the rest of what
it has begun, closes, and goes on elsewhere. Each remembers when a message was sent and answered, and when it had to leave, so
that a stall can be told with what it was made of.
"""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from e2e.moves.ledger import MODES, PLAIN, REPEATED, Sent
from e2e.moves.publishers import Load, Publisher, PublisherError

from supercluster.spark.client import Credentials

PAUSE_SECONDS = 0.02
REST_SECONDS = 2.0
"""What was begun is written to a broker that leaves for so long at most."""


@dataclass(frozen=True, slots=True)
class Parting:
    """A publisher had to leave a broker."""

    at: float
    mode: int
    source: str
    destination: str
    why: str
    seconds: float
    """Until it was connected again."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A time without an answer to one publisher."""

    mode: int
    since: float
    until: float

    @property
    def ms(self) -> float:
        return 1000 * (self.until - self.since)


@dataclass(slots=True)
class Roamer(Publisher):
    """See the module. `urls` may be changed while it runs: brokers come back with other addresses."""

    url: str = ""
    partings: list[Parting] = field(default_factory=list)
    sent_at: array[float] = field(default_factory=lambda: array("d"))
    waits: list[tuple[float, float]] = field(default_factory=list)
    """(when a message was sent for the first time, ms until its answer)."""
    starts: list[int] = field(default_factory=list)
    is_asking: bool = False
    """A PING was sent, whose answer is waited for: over another connection, should this one end before."""

    def __post_init__(self) -> None:
        Publisher.__post_init__(self)
        self.url = self.urls[0]

    def offer(self, count: int, now: float) -> None:
        self.sent_at.extend([now] * count)
        Publisher.offer(self, count, now)

    def _note_answer(self, number: int, now: float) -> None:
        if number not in self.answered and 1 <= number <= self.sent:
            sent = self.sent_at[number - 1]
            self.waits.append((sent, 1000 * (now - sent)))
        Publisher._note_answer(self, number, now)

    def _lost(self, why: str) -> None:
        began, source = time.monotonic(), self.url
        if self._out and self.mode != REPEATED:
            # A broker that has sent FIN reads on; one that was killed does not, and the ledger tells.
            with suppress(OSError):
                self.sock.settimeout(REST_SECONDS)
                self.sock.sendall(self._out)
        self.sock.close()
        self._dial_again()
        self.starts.append(self.sent + 1)
        self.partings.append(Parting(began, self.mode, source, self.url, why, time.monotonic() - began))
        if self.mode == REPEATED:
            self._send_unanswered()
        if self.is_asking:
            self.ping()

    def ping(self) -> None:
        self.is_asking = True
        Publisher.ping(self)

    def _next_urls(self) -> Iterator[str]:
        while True:
            urls = list(self.urls)
            here = urls.index(self.url) if self.url in urls else -1
            # Taken as the one it is connected to: if that fails, the next one follows it.
            self.url = urls[(here + 1) % len(urls)]
            yield self.url

    def report(self) -> Sent:
        sent = Publisher.report(self)
        return Sent(sent.count, sent.refused, sent.resent, sent.refused_unnamed, tuple(self.starts))


@dataclass(frozen=True, slots=True)
class Account:
    """What one publisher did and saw."""

    sent: Sent
    sent_at: array[float]
    answer_times: array[float]
    waits: list[tuple[float, float]]
    partings: list[Parting]
    pauses: list[tuple[float, float]]
    """(when it went on, for how many seconds it had got no turn): then a stall is the machine's."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What all of them did, by mode."""

    accounts: Mapping[int, Account]
    started: float
    ended: float
    """Until then all of them published."""

    @property
    def reports(self) -> dict[int, Sent]:
        return {mode: account.sent for mode, account in self.accounts.items()}


class _Alone(Load):
    """One publisher on a thread of its own, so that one which looks for another broker holds up nobody else."""

    pauses: list[tuple[float, float]]

    def __init__(
        self,
        subject: str,
        urls: Mapping[int, Sequence[str]],
        rate: float,
        login: Credentials,
        make: type[Roamer],
    ) -> None:
        super().__init__(subject, urls, rate, login, make)
        self.pauses = []
        self._turned_at = 0.0

    def _turn(self) -> None:
        # From turn to turn, since it may be inside of one that somebody else has the processor.
        now = time.monotonic()
        if self._turned_at and now - self._turned_at > PAUSE_SECONDS:
            self.pauses.append((now, now - self._turned_at))
        self._turned_at = now
        super()._turn()


class Roaming:
    """All publishers, which share the rate."""

    def __init__(
        self,
        subject: str,
        urls: Mapping[int, Sequence[str]],
        rate: float,
        login: Credentials,
        make: type[Roamer] = Roamer,
    ) -> None:
        share = rate / max(1, len(urls))
        self.loads = {mode: _Alone(subject, {mode: own}, share, login, make) for mode, own in urls.items()}
        self.publishers = {
            mode: publisher
            for mode, load in self.loads.items()
            if isinstance(publisher := load.publishers[mode], Roamer)
        }

    @property
    def error(self) -> Exception | None:
        return next((load.error for load in self.loads.values() if load.error is not None), None)

    def start(self) -> None:
        for load in self.loads.values():
            load.start()

    def stop(self) -> None:
        """No more messages; returns when the last ones are settled.

        Raises:
            PublisherError: they are not, or something went wrong before; it says where publishers were.
        """
        for load in self.loads.values():
            load.stopping()
        try:
            for load in self.loads.values():
                load.stop()
        except PublisherError as error:
            now = time.monotonic()
            told = (
                f"{MODES[parting.mode]}, {now - parting.at:.1f} s ago: {parting.source} {parting.why}, to {parting.destination}"
                for publisher in self.publishers.values()
                for parting in publisher.partings
            )
            raise PublisherError(f"{error}; {'; '.join(told)}") from None

    def abandon(self) -> None:
        """End in any case; does nothing after `stop`."""
        for load in self.loads.values():
            load.abandon()

    def seen(self) -> Seen:
        accounts = {
            mode: Account(
                publisher.report(),
                publisher.sent_at,
                publisher.answer_times,
                publisher.waits,
                publisher.partings,
                self.loads[mode].pauses,
            )
            for mode, publisher in self.publishers.items()
        }
        loads = self.loads.values()
        return Seen(accounts, max(load.started for load in loads), min(load.ended for load in loads))


def longest_stall(seen: Seen, since: float, until: float) -> Stall:
    """The longest time in which one of the publishers had no answer."""
    worst = Stall(PLAIN, since, since)
    for mode, account in seen.accounts.items():
        if mode == PLAIN:
            continue
        edges = [since, *(at for at in account.answer_times if since <= at <= until), until]
        for before, after in itertools.pairwise(edges):
            if after - before > worst.until - worst.since:
                worst = Stall(mode, before, after)
    return worst


def waits_ms(seen: Seen, since: float, until: float) -> list[float]:
    """Of the messages sent in that time that were answered."""
    return [ms for found in seen.accounts.values() for sent, ms in found.waits if since <= sent <= until]


def answered(seen: Seen, since: float, until: float) -> int:
    """How many messages were answered in that time."""
    return sum(
        since <= sent + ms / 1000 <= until for found in seen.accounts.values() for sent, ms in found.waits
    )


def explain(seen: Seen, stall: Stall, names: Mapping[str, str]) -> str:
    """A stall in words, with what happened to its publisher meanwhile. `names`: broker by address, as far as known."""
    text = f"{MODES[stall.mode]}: {stall.ms:,.0f} ms without an answer"
    told = []
    account = seen.accounts[stall.mode]
    for parting in account.partings:
        if stall.since - REST_SECONDS <= parting.at <= stall.until:
            source, goal = (names.get(url, url) for url in (parting.source, parting.destination))
            told.append(
                f"{1000 * (parting.at - stall.since):+,.0f} ms: {source} {parting.why}, connected to {goal}"
                f" {1000 * parting.seconds:,.0f} ms later"
            )
    sent = [at for at in account.sent_at if stall.since <= at <= stall.until]
    waits = [ms for at, ms in account.waits if stall.since <= at <= stall.until]
    if waits:
        told.append(
            f"{len(sent)} messages were sent meanwhile, and answered after {min(waits):,.0f} to {max(waits):,.0f} ms"
        )
    for at, seconds in account.pauses:
        if stall.since <= at <= stall.until + seconds:
            told.append(f"{1000 * (at - stall.since):+,.0f} ms: it got no turn for {1000 * seconds:,.0f} ms")
    return f"{text}; " + ("; ".join(told) if told else "it stayed where it was")
