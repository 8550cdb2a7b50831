"""The freshness of a broker's map of streams, and the operations that it permits (SF-14).

The map is the meta group's state as applied here. Streams may have been created or changed while a broker was
out of contact. So it reads the map (read index) before it captures messages again, and accepts no clients
before its first read. It reports to the meta leader how far it has applied the map, since changes are
answered only after the brokers in contact have them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links import frames
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.meta.view import MapView
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.copy_manager import CopyManager
from supercluster.broker.jetstream.publish.windows import PublishWindows
from supercluster.broker.process_count import numbers_from

# Where the meta group has no majority, clients are accepted from the state on disk after this.
MAP_WAIT_MS = 5000
# A map read that failed is repeated after this.
MAP_RETRY_MS = 200
# A client's call that depends on a fresh map waits so long for one: an election, and less than clients wait for an answer.
CALL_WAIT_MS = 4000
CALLS_MAX = 4096


class MapReader:
    def __init__(
        self,
        env: Environment,
        peers: Peers,
        copies: Copies,
        map_view: MapView,
        leaderships: Leaderships,
        copy_manager: CopyManager,
        ingest: PublishWindows,
        invalidate_captures: Callable[[], None],
        on_streams_changed: Callable[[list[str]], None],
        on_changed: Callable[[], None],
    ) -> None:
        """`on_streams_changed(gone)` is called when streams of the map changed, with the groups that it no longer has, and `on_changed`
        when anything did."""
        self._on_changed = on_changed
        self._env = env
        self._peers = peers
        self._copies = copies
        self._map = map_view
        self._leaderships = leaderships
        self._copy_manager = copy_manager
        self._ingest = ingest
        self._invalidate_captures = invalidate_captures
        self._on_streams_changed = on_streams_changed
        self._index_of: dict[str, int] = {}
        self._read_from: tuple[int, str] | None = None
        """Term and broker of the meta leader that the map was read from, or is being read from."""
        self._reads = numbers_from(self._env.store.process_count)
        self._retry_ms = 0
        self._calls: deque[tuple[int, Callable[[], None]]] = deque()
        """Until when each waits for a fresh map."""
        self._map.unread_since_ms = self._env.clock.monotonic_ms()
        self.deadline_unread_ms = self._env.clock.monotonic_ms() + MAP_WAIT_MS
        """Until then nothing is done by a map that was not read."""

    # ---- what was applied where -----------------------------------------------------------------------------------

    def changed(self, groups: list[str]) -> None:
        """The meta group's state moved on: open and remove groups, take the new capture map, and say so."""
        assert self._map.replica is not None
        if groups or self._map.index == 0:
            self._copy_manager.follow_map(groups)
            self.set_captures()
            present = {found.group for found in self._map.replica.state.streams.values()}
            self._on_streams_changed([group for group in groups if group not in present])
        self._on_changed()
        self._map.index = self._map.replica.applied_index
        leader = self._leaderships.leader_of(self._map.meta_id)
        if leader is not None and leader != self._env.node:
            self._tell_index(leader)

    def set_captures(self) -> None:
        """Capture by the map as it is here."""
        whole = [found for found in self._map.streams if found.restoring is None]
        self._ingest.set_map(whole, self._invalidate_captures)

    def _tell_index(self, leader: str) -> None:
        self._peers.post(leader, Frame.MAP_APPLIED, frames.encode_number(self._map.index))

    def on_map_index(self, node: str, index: int) -> None:
        """A broker has applied the map up to there."""
        self._index_of[node] = max(self._index_of.get(node, 0), index)

    def index_of(self, node: str) -> int:
        """How far a broker in contact has applied the map, as far as this one knows."""
        return self._map.index if node == self._env.node else self._index_of.get(node, 0)

    # ---- contact --------------------------------------------------------------------------------------------------

    def leader_serves(self) -> None:
        """A broker leads the meta group, as `Leaderships` says by now."""
        leader = self._leaderships.leader_of(self._map.meta_id)
        if leader == self._env.node:
            self.was_read()
            return
        if leader is not None and self._map.index:
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
        if (
            self._map.replica is not None
            and self._map.index
            and self._leaderships.leader_of(self._map.meta_id) == node
        ):
            self._tell_index(node)
        if (
            not self._map.is_fresh
            and self._leaderships.leader_of(self._map.meta_id) == self._env.node
            and not self._is_cut_off()
        ):
            self._read()

    def link_down(self, node: str) -> None:
        """Contact with a broker is lost; `Leaderships` still says what it led."""
        self._index_of.pop(node, None)
        if self._leaderships.leader_of(self._map.meta_id) == node or self._is_cut_off():
            self.is_doubtful()

    def _is_cut_off(self) -> bool:
        """A leader without a majority is overtaken sooner than it notices by time: the others know of the lost links, too."""
        return (
            self._map.replica is not None
            and self._leaderships.leader_of(self._map.meta_id) == self._env.node
            and not self._map.replica.raft.could_win()
        )

    def begin_anew(self) -> None:
        """The map is of another lineage from now on (SF-9): whatever was applied of it, nobody here has."""
        self._map.index = 0
        self._index_of.clear()
        self.is_doubtful()
        self._hold_captures()

    def stood_still(self) -> None:
        """This process did nothing for long enough that the others may have given it up, and have answered changes of
        the map without it: nothing is captured, nor passed on uncaptured, before the map was read again."""
        if self._map.replica is not None:
            self.is_doubtful()
            self._hold_captures()

    def leadership_lost(self) -> None:
        """This broker led the meta group: another leader may be elected by brokers that it is out of contact with."""
        self._leaderships.forget(self._map.meta_id, self._env.node)
        self.is_doubtful()

    def is_doubtful(self) -> None:
        """Streams may have been made without this broker: the next contact with a meta leader begins with a read."""
        if self._map.is_fresh:
            self._map.is_fresh = False
            self._map.unread_since_ms = self._env.clock.monotonic_ms()
        self._read_from = None
        if self._map.replica is not None:
            self._map.replica.forget_read()

    # ---- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        """In contact with the meta leader (again, or with another one): read the map before capturing on. Nobody may
        have told that leader that this broker is there, and then it did not wait for it with what it changed."""
        leader = self._leaderships.find(self._map.meta_id)
        if leader is None or (self._map.is_fresh and self._read_from == leader):
            return
        self.is_doubtful()
        self._hold_captures()
        self._ask(leader)

    def _ask(self, leader: tuple[int, str]) -> None:
        self._read_from = leader
        if self._map.replica is not None:
            self._reads += 1
            self._map.replica.read_map(self._reads)
            self._copies.touch(self._map.meta_id)

    def _hold_captures(self) -> None:
        if not self._ingest.held:
            self._ingest.hold()
            self._invalidate_captures()
            self.deadline_unread_ms = self._env.clock.monotonic_ms() + MAP_WAIT_MS

    def was_read(self) -> None:
        """The map is at least as new as the beginning of the contact with the meta leader."""
        if not self._map.is_fresh:
            self._map.is_fresh = True
            self._copy_manager.map_was_read()
            self._ingest.release(self._invalidate_captures)
        self._call(self._env.clock.monotonic_ms())

    def when_fresh(self, call: Callable[[], None]) -> None:
        """Have it called as soon as the map is fresh; as it is, when that takes too long."""
        if self._map.is_fresh or len(self._calls) >= CALLS_MAX:
            call()
        else:
            self._calls.append((self._env.clock.monotonic_ms() + CALL_WAIT_MS, call))
            self._find_leader()

    def _find_leader(self) -> None:
        """Somebody waits for a read: whoever leads the map is to say so, if it is not known."""
        if self._leaderships.leader_of(self._map.meta_id) is None:
            self._leaderships.ask(self._map.meta_id)
            self._retry_ms = self._env.clock.monotonic_ms() + MAP_RETRY_MS

    def _call(self, now_ms: int) -> None:
        """Those whose time has come."""
        while self._calls and (self._map.is_fresh or now_ms >= self._calls[0][0]):
            self._calls.popleft()[1]()

    def read_failed(self) -> None:
        """Nobody confirmed the read: ask again with the next tick."""
        self._read_from = None
        self._retry_ms = self._env.clock.monotonic_ms() + MAP_RETRY_MS

    @property
    def accepts_clients(self) -> bool:
        """May clients be let in: the map was read, or its group has no majority and the wait is over."""
        return self._map.is_fresh or self._env.clock.monotonic_ms() >= self.deadline_unread_ms

    # ---- time -----------------------------------------------------------------------------------------------------

    def tick(self, now_ms: int) -> None:
        """Read again what could not be read; after the wait, capture by the map that there is."""
        leader = self._leaderships.find(self._map.meta_id)
        if (
            not self._map.is_fresh
            and self._read_from is None
            and leader is not None
            and now_ms >= self._retry_ms
        ):
            self._ask(leader)
        if self._calls and leader is None and now_ms >= self._retry_ms:
            self._find_leader()
        if not self._map.is_fresh and now_ms >= self.deadline_unread_ms and self._ingest.held:
            self._ingest.release(self._invalidate_captures)
        self._call(now_ms)

    def deadline_ms(self) -> int | None:
        """When `tick` has something to do."""
        if self._map.is_fresh:
            return None
        due = [self._calls[0][0]] if self._calls else []
        is_led = self._leaderships.leader_of(self._map.meta_id) is not None
        if (self._read_from is None and is_led) or (self._calls and not is_led):
            due.append(self._retry_ms)
        if self._ingest.held:
            due.append(self.deadline_unread_ms)
        return min(due, default=None)
