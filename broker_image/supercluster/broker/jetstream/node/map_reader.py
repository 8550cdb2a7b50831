"""How fresh a broker's map of streams is, and what it may do by it (SF-14).

The map is the meta group's state as far as it was applied here. Streams may have been made or changed without a broker
that was out of contact: it reads the map (read index) before it captures on, takes no clients before its first read,
and tells the meta leader how far it has applied the map, since changes are answered only after the brokers in contact
have them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.process_count import numbers_from

if TYPE_CHECKING:
    from supercluster.broker.jetstream.core.broker import BrokerCore

# Where the meta group has no majority, clients are accepted from the state on disk after this.
MAP_WAIT_MS = 5000
# A map read that failed is repeated after this.
MAP_RETRY_MS = 200
# A client's call that depends on a fresh map waits so long for one: an election, and less than clients wait for an answer.
CALL_WAIT_MS = 4000
CALLS_MAX = 4096


class MapReader:
    """See the module."""

    def __init__(self, core: BrokerCore, on_groups_gone: Callable[[list[str]], None]) -> None:
        """`on_groups_gone(groups)` ends, or sends elsewhere, what clients ask of streams that the map no longer has."""
        self._on_groups_gone = on_groups_gone
        self.index = 0
        """The meta group's entry up to which the map was applied here."""
        self.is_fresh = False
        """Was the map read since the last time that it may have changed without this broker?"""
        self._core = core
        self._index_of: dict[str, int] = {}
        self._read_from: tuple[int, str] | None = None
        """Term and broker of the meta leader that the map was read from, or is being read from."""
        self._reads = numbers_from(core.store.process_count)
        self._retry_ms = 0
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()
        """Until when each waits for a fresh map."""
        self.deadline_unread_ms = core.clock.monotonic_ms() + MAP_WAIT_MS
        """Until then nothing is done by a map that was not read."""

    # ---- what was applied where -----------------------------------------------------------------------------------

    def changed(self, groups: list[str]) -> None:
        """The meta group's state moved on: open and remove groups, take the new capture map, and say so."""
        core = self._core
        assert core.meta is not None
        if groups or self.index == 0:
            core.life.follow_map(groups)
            core.ingest.set_map(core.meta.state.shown(), core.invalidate_captures)
            core.origin_links.all_changed()
            core.mirror_reads.map_changed()
            present = {found.group for found in core.meta.state.streams.values()}
            gone = [group for group in groups if group not in present]
            if gone:
                core.acks.groups_gone(gone)
                self._on_groups_gone(gone)
        self.index = core.meta.applied_index
        leader = core.leader_of(core.meta_id)
        if leader is not None and leader != core.node:
            self._tell_index(leader)

    def _tell_index(self, leader: str) -> None:
        self._core.post(leader, Frame.MAP_APPLIED, frames.encode_number(self.index))

    def on_map_index(self, node: str, index: int) -> None:
        """A broker has applied the map up to there."""
        self._index_of[node] = max(self._index_of.get(node, 0), index)

    def index_of(self, node: str) -> int:
        """How far a broker in contact has applied the map, as far as this one knows."""
        return self.index if node == self._core.node else self._index_of.get(node, 0)

    # ---- contact --------------------------------------------------------------------------------------------------

    def leader_serves(self) -> None:
        """A broker leads the meta group, as the core's table of leaders says by now."""
        leader = self._core.leader_of(self._core.meta_id)
        if leader == self._core.node:
            self.was_read()
            return
        if leader is not None and self.index:
            self._tell_index(leader)
        self._read()

    def leader_heard(self, *, heard: bool) -> None:
        """The meta group's replica here hears a leader (again, or another one), or none any more, whatever links say."""
        if heard:
            self._read()
        else:
            self.is_doubtful()

    def link_up(self, node: str) -> None:
        """A broker is linked (again)."""
        core = self._core
        if core.meta is not None and self.index and core.leader_of(core.meta_id) == node:
            self._tell_index(node)
        if not self.is_fresh and core.leader_of(core.meta_id) == core.node and not self._is_cut_off():
            self._read()

    def link_down(self, node: str) -> None:
        """Contact with a broker is lost; the core still knows what it led."""
        self._index_of.pop(node, None)
        if self._core.leader_of(self._core.meta_id) == node or self._is_cut_off():
            self.is_doubtful()

    def _is_cut_off(self) -> bool:
        """A leader without a majority is overtaken sooner than it notices by time: the others know of the lost links, too."""
        core = self._core
        return (
            core.meta is not None
            and core.leader_of(core.meta_id) == core.node
            and not core.meta.raft.could_win()
        )

    def begin_anew(self) -> None:
        """The map is of another lineage from now on (SF-9): whatever was applied of it, nobody here has."""
        self.index = 0
        self._index_of.clear()
        self.is_doubtful()
        self._hold_captures()

    def stood_still(self) -> None:
        """This process did nothing for long enough that the others may have given it up, and have answered changes of
        the map without it: nothing is captured, nor passed on uncaptured, before the map was read again."""
        if self._core.meta is not None:
            self.is_doubtful()
            self._hold_captures()

    def leadership_lost(self) -> None:
        """This broker led the meta group: another leader may be elected by brokers that it is out of contact with."""
        self._core.leaderships.forget(self._core.meta_id, self._core.node)
        self.is_doubtful()

    def is_doubtful(self) -> None:
        """Streams may have been made without this broker: the next contact with a meta leader begins with a read."""
        self.is_fresh = False
        self._read_from = None
        if self._core.meta is not None:
            self._core.meta.forget_read()

    # ---- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """In contact with the meta leader (again, or with another one): read the map before capturing on. Nobody may
        have told that leader that this broker is there, and then it did not wait for it with what it changed."""
        leader = self._core.leaderships.find(self._core.meta_id)
        if leader is None or (self.is_fresh and self._read_from == leader):
            return
        self.is_doubtful()
        self._hold_captures()
        self._ask(leader)

    def _ask(self, leader: tuple[int, str]) -> None:
        self._read_from = leader
        core = self._core
        if core.meta is not None:
            self._reads += 1
            core.meta.read_map(self._reads)
            core.touch(core.meta_id)

    def _hold_captures(self) -> None:
        core = self._core
        if not core.ingest.held:
            core.ingest.hold()
            core.invalidate_captures()
            self.deadline_unread_ms = core.clock.monotonic_ms() + MAP_WAIT_MS

    def was_read(self) -> None:
        """The map is at least as new as the beginning of the contact with the meta leader."""
        if not self.is_fresh:
            self.is_fresh = True
            self._core.life.map_was_read()
            self._core.ingest.release(self._core.invalidate_captures)
        self._call(self._core.clock.monotonic_ms())

    def when_fresh(self, call: Callable[[], None]) -> None:
        """Have it called as soon as the map is fresh; as it is, when that takes too long."""
        if self.is_fresh or len(self._calls) >= CALLS_MAX:
            call()
        else:
            self._calls.append((self._core.clock.monotonic_ms() + CALL_WAIT_MS, call))
            self._find_leader()

    def _find_leader(self) -> None:
        """Somebody waits for a read: whoever leads the map is to say so, if it is not known."""
        core = self._core
        if core.leader_of(core.meta_id) is None:
            core.who_leads(core.meta_id)
            self._retry_ms = core.clock.monotonic_ms() + MAP_RETRY_MS

    def _call(self, now_ms: int) -> None:
        """Those whose time has come."""
        while self._calls and (self.is_fresh or now_ms >= self._calls[0][0]):
            self._calls.popleft()[1]()

    def read_failed(self) -> None:
        """Nobody confirmed the read: ask again with the next tick."""
        self._read_from = None
        self._retry_ms = self._core.clock.monotonic_ms() + MAP_RETRY_MS

    @property
    def accepts_clients(self) -> bool:
        """May clients be let in: the map was read, or its group has no majority and the wait is over."""
        return self.is_fresh or self._core.clock.monotonic_ms() >= self.deadline_unread_ms

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Read again what could not be read; after the wait, capture by the map that there is."""
        leader = self._core.leaderships.find(self._core.meta_id)
        if not self.is_fresh and self._read_from is None and leader is not None and now_ms >= self._retry_ms:
            self._ask(leader)
        if self._calls and leader is None and now_ms >= self._retry_ms:
            self._find_leader()
        if not self.is_fresh and now_ms >= self.deadline_unread_ms and self._core.ingest.held:
            self._core.ingest.release(self._core.invalidate_captures)
        self._call(now_ms)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        if self.is_fresh:
            return None
        due = [self._calls[0][0]] if self._calls else []
        is_led = self._core.leader_of(self._core.meta_id) is not None
        if (self._read_from is None and is_led) or (self._calls and not is_led):
            due.append(self._retry_ms)
        if self._core.ingest.held:
            due.append(self.deadline_unread_ms)
        return min(due, default=None)
