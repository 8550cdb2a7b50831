"""Compares passwords with hashes, which is slow on purpose: in threads, one address after the other.

An address has a few attempts at once, and one more each second; a successful attempt does not count.
Addresses take turns, so wrong passwords from one address do not delay another. Credentials that succeeded
once are remembered (`auth/credentials.py`) and need no comparison.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from supercluster.broker.auth.credentials import Credentials
from supercluster.broker.auth.users import Shown, User
from supercluster.broker.net.clients.strangers import Attempts, network_of
from supercluster.broker.ports import Clock

THREADS = 2
"""Enough that one hash does not hold up all, and not so many that they take the broker's time."""
WAITING_MAX = 4096
"""Passwords that wait to be compared, of all addresses."""
ATTEMPTS_BURST = 32
"""Wrong passwords of one address that are compared at once; so many of its clients may come together for the first time."""
ATTEMPTS_PER_S = 1.0

Run: TypeAlias = "Callable[[Callable[[], User | None]], asyncio.Future[User | None]]"


OWN = ""
"""In place of an address, for what no client has asked for: it uses up nobody's share, and takes its turns with the others."""


@dataclass(frozen=True, slots=True)
class _Login:
    address: str
    shown: Shown | None
    find: Callable[[], User | None]
    is_wanted: Callable[[], bool]
    then: Callable[[User | None], None]


class Comparisons:
    """Of one broker. `run` is for tests; None: threads."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, credentials: Credentials, run: Run | None = None
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._credentials = credentials
        self._run = run or self._in_threads
        self._threads: ThreadPoolExecutor | None = None
        self._attempts = Attempts(ATTEMPTS_BURST, ATTEMPTS_PER_S)
        self._queues: OrderedDict[str, deque[_Login]] = OrderedDict()
        """By network, in the order of their turns."""
        self._waiting = 0
        self._running = 0

    def compare(
        self,
        address: str,
        shown: Shown,
        is_wanted: Callable[[], bool],
        then: Callable[[User | None], None],
    ) -> bool:
        """Find out who that is, and call `then`, unless `is_wanted` says no by then. False: the address has had its share."""
        if self._waiting >= WAITING_MAX or not self._attempts.take(address, self._clock.monotonic_ms()):
            return False
        self._add(_Login(address, shown, partial(self._credentials.find, shown), is_wanted, then))
        return True

    def compare_plain(
        self, user: User, is_wanted: Callable[[], bool], then: Callable[[User | None], None]
    ) -> bool:
        """Find out which entry has a hash of the password that is plain in `user`, and call `then` as `compare` does. False: too many
        others wait."""
        if self._waiting >= WAITING_MAX:
            return False
        self._add(_Login(OWN, None, partial(self._credentials.hashed_of, user), is_wanted, then))
        return True

    def _add(self, login: _Login) -> None:
        self._queues.setdefault(network_of(login.address), deque()).append(login)
        self._waiting += 1
        self._start()

    def close(self) -> None:
        """Compare nothing more."""
        self._queues.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
            self._threads = None

    def _start(self) -> None:
        while self._running < THREADS and self._queues:
            login = self._next()
            known = self._credentials.known(login.shown) if login.shown is not None else None
            if not login.is_wanted() or known is not None:
                self._end(login, known, is_counted=False)
                continue
            self._running += 1
            work = self._run(login.find)
            work.add_done_callback(partial(self._compared, login))

    def _next(self) -> _Login:
        network, queue = self._queues.popitem(last=False)
        if len(queue) > 1:
            self._queues[network] = queue
        self._waiting -= 1
        return queue.popleft()

    def _compared(self, login: _Login, work: asyncio.Future[User | None]) -> None:
        self._running -= 1
        if work.cancelled():
            return
        user = work.result()
        if user is not None and login.shown is not None:
            self._credentials.remember(login.shown, user)
        self._end(login, user, is_counted=user is None)
        self._start()

    def _end(self, login: _Login, user: User | None, *, is_counted: bool) -> None:
        if not is_counted and login.address != OWN:
            self._attempts.give_back(login.address, self._clock.monotonic_ms())
        if login.is_wanted():
            login.then(user)

    def _in_threads(self, work: Callable[[], User | None]) -> asyncio.Future[User | None]:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="passwords")
        return self._loop.run_in_executor(self._threads, work)
