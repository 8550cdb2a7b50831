"""Appended changes of the map of streams whose answers are still due.

An answer waits until the change is committed and every broker in contact has the new map (SF-14), within a
bound. If no other broker needs the change, its commit suffices.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from supercluster.broker.jetstream import errors
from supercluster.broker.jetstream.errors import ApiError
from supercluster.broker.jetstream.meta_leader.host import MetaHost
from supercluster.broker.jetstream.meta_leader.stream_request import NotAppendedError

# A change is answered after this long even if a broker in contact has not said that it has the map: such a broker is
# on its way out of contact, and reads the map before it captures again. So it is longer than the silence after which a
# link is given up (2 s between clusters, `net/links/mesh.py`), and shorter than clients wait (5 s).
MAP_WAIT_MS = 3000
# Requests of one kind that wait for a turn or for their commit.
REQUESTS_MAX = 256


@dataclass(slots=True)
class _Waiting:
    index: int
    done: Callable[[], None]
    undecided: Callable[[], None]
    give_up_ms: int
    nodes: frozenset[str]


class MapWaits:
    """See the module. Whoever adds to it bounds how many there are."""

    def __init__(self, host: MetaHost, *, everywhere: bool = True) -> None:
        self._host = host
        self._everywhere = everywhere
        self._waiting: list[_Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, index: int, now_ms: int, done: Callable[[], None], undecided: Callable[[], None]) -> None:
        """`undecided` is called when this leader falls: the next one is to be asked."""
        nodes = frozenset(self._host.brokers_in_contact() if self._everywhere else ())
        self._waiting.append(_Waiting(index, done, undecided, now_ms + MAP_WAIT_MS, nodes))

    def after_turn(self, applied_index: int, now_ms: int) -> None:
        """Answer what may be answered."""
        if not self._waiting:
            return
        contact = self._host.brokers_in_contact()
        ready: list[_Waiting] = []
        still: list[_Waiting] = []
        for found in self._waiting:
            is_ready = applied_index >= found.index and (
                now_ms >= found.give_up_ms
                or all(
                    self._host.map_index_of(node) >= found.index for node in found.nodes if node in contact
                )
            )
            (ready if is_ready else still).append(found)
        self._waiting = still
        for found in ready:
            found.done()

    def give_up_ms(self, applied_index: int) -> list[int]:
        """When changes are answered though a broker has not said that it has the map. One that is not committed waits for
        that, however late it is, and the turn that applies it answers it."""
        return [found.give_up_ms for found in self._waiting if applied_index >= found.index]

    def answer_applied(self, applied_index: int) -> None:
        """Answer those whose change is committed, whoever has it yet."""
        done = [found for found in self._waiting if applied_index >= found.index]
        self._waiting = [found for found in self._waiting if applied_index < found.index]
        for found in done:
            found.done()

    def clear(self) -> None:
        """This replica does not lead any more."""
        waiting, self._waiting = self._waiting, []
        for found in waiting:
            found.undecided()


class MapRequests(MapWaits):
    """Requests that the leader judges in its turn. `everywhere`: they are answered when every broker in contact has the new map."""

    def __init__(self, host: MetaHost, *, everywhere: bool) -> None:
        super().__init__(host, everywhere=everywhere)
        self._queue: deque[
            tuple[Callable[[], int], Callable[[ApiError | None], None], Callable[[], None]]
        ] = deque()

    def _take(
        self,
        judge: Callable[[], int],
        answer: Callable[[ApiError | None], None],
        undecided: Callable[[], None],
    ) -> None:
        """`judge` returns the index of the entry that has what was asked for, or refuses. `undecided` is called when this leader
        falls: the next one is to be asked."""
        if len(self._queue) + len(self) >= REQUESTS_MAX:
            answer(errors.error(errors.INSUFFICIENT_RESOURCES))
            return
        self._queue.append((judge, answer, undecided))

    def turn(self, now_ms: int) -> None:
        """Judge what was asked."""
        while self._queue:
            judge, answer, undecided = self._queue.popleft()
            try:
                index = judge()
            except ApiError as refused:
                answer(refused)
            except NotAppendedError:
                undecided()
            else:
                self.add(index, now_ms, partial(answer, None), undecided)

    def clear(self) -> None:
        """This replica does not lead any more."""
        queue, self._queue = self._queue, deque()
        super().clear()
        for _, _, undecided in queue:
            undecided()
