"""A whole cluster in one thread, from a seed: the brokers' real cores over a network, disks and clocks that fail.

Time is simulated: the world holds a heap of events and jumps from one to the next. Links keep order or lose it, drop
and repeat frames, and are cut; brokers are killed (what was written stays) or lose power (what was not synced may go,
writes may be torn), and come back; clocks drift. After every applied entry the ledger checks the invariants of
docs/safety.md; a broken one raises `InvariantBroken`, with the seed that replays it.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.simulator.disk import CrashNow
from tests.simulator.ledger import Ledger
from tests.simulator.seams import SimClock, SimCore, SimNetwork
from tests.simulator.stores import SimStore

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.jetstream.node.put_back import PutBackError
from supercluster.broker.ports import Channel, PeerInfo
from supercluster.broker.protocol import frames
from supercluster.broker.raft.errors import DiskError

CLUSTER = "sim"
# A minute takes some ten thousand steps: a world that takes so many goes in a circle.
STEPS_A_MINUTE_MAX = 400_000


@dataclass(slots=True)
class Faults:
    """How bad the weather is; drawn from the seed."""

    loss: float = 0.0
    repeat: float = 0.0
    reorder: float = 0.0
    delay_max_ms: float = 3.0
    bulk_bytes_per_ms: float = 0.0
    """What a bulk link carries, 0: all there is. The control link carries `CONTROL_SHARE` times that."""
    queue_bytes_max: int = 64 << 20
    """What waits on a link of bounded bandwidth beyond so many bytes is refused, as in `net/links/link.py`."""


@dataclass(slots=True)
class Node:
    """One broker: its store outlives its core."""

    name: str
    store: SimStore
    clock: SimClock
    core: BrokerCore | None = None
    process: int = 0
    slow_until_us: int = 0
    tick_at_us: int = 0
    crash_with_power: bool = False
    stands_still: bool = False
    is_busy: bool = False
    """It is in a turn, which takes time."""
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """What happens to it as soon as it does neither, in order."""
    still_since_us: int = 0
    woke_us: int = -1_000_000_000
    on_down: list[Callable[[], None]] = field(default_factory=list)

    @property
    def up(self) -> bool:
        return self.core is not None

    @property
    def awake(self) -> BrokerCore | None:
        """The core, where clients get an answer from it."""
        return None if self.stands_still else self.core


CONTROL_SHARE = 10

# The loop goes round so often when nothing happens, as `net/routing/turn.py` sees to.
PULSE_MS = 100
# Of a broker that says nothing for so long the others give the link up; it asks for the map anew when it stood still for half of it.
SILENCE_MS = 1000

LONG_TURN_MS = 20.0
"""Behind a shorter turn hardly anything waits."""

# So short that the weather keeps streams without a leader for longer: windows give up (SF-15).
WINDOW_WAIT_MS = 1500


class World:
    """See the module."""

    def __init__(
        self,
        seed: int,
        nodes: int = 3,
        *,
        rng: random.Random | None = None,
        meta_voters: int = 0,
        clusters: dict[str, str] | None = None,
        founders: tuple[str, ...] = (),
    ) -> None:
        """`clusters` is node → cluster, where there are several; `founders` then begin the meta group."""
        self.seed = seed
        self.rng = rng or random.Random(seed)
        self.now_us = 0
        self.steps = 0
        self.faults = Faults()
        self.ledger = Ledger(self)
        self.apart: dict[str, Ledger] = {}
        """Broker → what its groups do, where they are others of the same names (SF-26)."""
        self._silent: set[tuple[str, str]] = set()
        self.on_crash: Callable[[str], None] = lambda name: None
        """A broker died in the middle of a disk operation."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._links: dict[tuple[str, str], int] = {}
        self._cut: set[frozenset[str]] = set()
        self._cut_for_long: set[frozenset[str]] = set()
        self.sought = ""
        """The broker that clients turn to more than to others."""
        self._busy_until: dict[tuple[str, str, Channel], int] = {}
        self.sent_bytes: Counter[Channel] = Counter()
        self._clients: dict[bytes, Callable[[bytes, bytes], None]] = {}
        self._inboxes: dict[bytes, Callable[[Sequence[Any]], None]] = {}
        self._turns: set[str] = set()
        self.met: Counter[str] = Counter()
        """Rare faults that happened, and how often: one that is drawn may find nobody to strike."""
        self.log: deque[str] = deque(maxlen=400)
        self.told_lost: set[tuple[str, str]] = set()
        """Broker and group of each copy that said that records of it are gone."""
        self.faults_are_findings = True
        """Does an error in the code of a group end the run?"""
        self.verbose = False
        names = list(clusters or [f"n{number}" for number in range(nodes)])
        self.cluster_of = clusters or dict.fromkeys(names, CLUSTER)
        self.names = names
        self.meta_voters = founders or tuple(names[: meta_voters or nodes])
        self.tags_of: dict[str, tuple[str, ...]] = {}
        self.join_only: set[str] = set()
        self.away: set[str] = set()
        """Brokers that nobody can start."""
        self.bootstrap_wait_ms = 0
        self.bootstrap_clusters = frozenset[str]()
        self.retired_grace_ms = 600_000
        self.scrub_bytes_per_s = 0
        self.frame_limits: dict[str, Any] = {}
        """Fields of `RaftConfig` that bound frames."""
        self.turn_ms: Callable[[], float] = lambda: 0.0
        """How long a turn takes."""
        self.nodes: dict[str, Node] = {}
        for name in names:
            clock = SimClock(
                self, self.rng.randrange(-200_000_000, 200_000_000), self.rng.randrange(-200, 200)
            )
            self.nodes[name] = Node(name, SimStore(random.Random(self.rng.getrandbits(64))), clock)

    # ---- time -----------------------------------------------------------------------------------------------------

    def at(self, delay_ms: float, action: Callable[[], None]) -> None:
        """Run an action after some simulated time."""
        self._number += 1
        heapq.heappush(self._events, (self.now_us + max(1, int(delay_ms * 1000)), self._number, action))

    def run(self, until_ms: float) -> None:
        """Run all events up to a time."""
        end_us = int(until_ms * 1000)
        events = self._events
        while events and events[0][0] <= end_us:
            self._step(heapq.heappop(events))
        self.now_us = max(self.now_us, end_us)

    def run_until(self, condition: Callable[[], bool], timeout_ms: float) -> bool:
        """Run until a condition holds; False when the time is over first."""
        end_us = self.now_us + int(timeout_ms * 1000)
        while not condition():
            if not self._events or self._events[0][0] > end_us:
                return condition()
            self._step(heapq.heappop(self._events))
        return True

    def _step(self, event: tuple[int, int, Callable[[], None]]) -> None:
        at_us, _, action = event
        self.now_us = max(self.now_us, at_us)
        self.steps += 1
        if self.steps > STEPS_A_MINUTE_MAX * (1 + self.now_us // 60_000_000):
            raise self.ledger.broken(f"liveness: {self.steps - 1:,} steps, and no rest")
        try:
            action()
        except CrashNow:
            for name, node in self.nodes.items():
                if node.store.disk.crashing:
                    self._died(name, power=node.crash_with_power)

    def _died(self, name: str, *, power: bool) -> None:
        node = self.nodes[name]
        if node.up:
            self.stop(name, power=power)
        else:
            self.met["end in a start"] += 1
            node.store.crash(power=power)
        self.on_crash(name)

    def note(self, text: str) -> None:
        """Keep a line for the report of a failing seed."""
        line = f"{self.now_us / 1e6:9.4f} {text}"
        self.log.append(line)
        if self.verbose:
            print(line, flush=True)

    # ---- brokers --------------------------------------------------------------------------------------------------

    def start(self, name: str) -> None:
        """Start a broker's process on whatever its disk holds."""
        node = self.nodes[name]
        if node.up or name in self.away:
            return
        node.process += 1
        try:
            core = self._new_core(node)
        except DiskError as error:
            # As a process manager would: try again, the disk may have been given room.
            self.note(f"{name} cannot start: {error}")
            node.store.crash(power=False)
            self.at(500, lambda: self.start(name))
            return
        node.core, node.woke_us = core, -1_000_000_000
        self.ledger_of(name).watch(name, core)
        for other in self.names:
            if other != name and self._may_link(name, other):
                self._link_up(name, other)
        self._pulse(node, node.process)
        self._arm(node)
        self.want_turn(name)

    def ledger_of(self, name: str) -> Ledger:
        """The history that a broker's groups are a part of."""
        return self.apart.get(name, self.ledger)

    def _settings(self, name: str) -> CoreSettings:
        return CoreSettings(
            name,
            self.cluster_of[name],
            self.meta_voters,
            tags=self.tags_of.get(name, ()),
            join_only=name in self.join_only,
            bootstrap_wait_ms=self.bootstrap_wait_ms,
            bootstrap_clusters=self.bootstrap_clusters - {self.cluster_of[name]},
            retired_grace_ms=self.retired_grace_ms,
            window_wait_ms=WINDOW_WAIT_MS,
            scrub_bytes_per_s=self.scrub_bytes_per_s,
        )

    def _new_core(self, node: Node) -> BrokerCore:
        name, before = node.name, node.store.incarnation
        opened = node.store.start()
        self.ledger_of(name).oracle.incarnation(name, before, node.store)
        settings = self._settings(name)
        rng = random.Random(self.rng.getrandbits(64))
        self.note(f"{name} starts as process {node.process}, volume {node.store.incarnation}")
        return SimCore(
            self,
            name,
            settings,
            opened,
            SimNetwork(self, name),
            node.clock,
            rng,
            on_event=partial(self._told, name),
        )

    def _told(self, name: str, group: str, reason: str, text: str) -> None:
        self.note(f"{name} event {group} {reason}: {text}")
        if reason == "RecordLost":
            self.told_lost.add((name, group))
        if reason in ("GroupFailed", "BadFrame") and self.faults_are_findings:
            # A broker outlives an error with one group; here it is what is looked for.
            raise self.ledger.broken(f"{name}: {group} {text}")

    def stop(self, name: str, *, power: bool) -> None:
        """Kill a broker's process; with `power`, its machine loses power."""
        node = self.nodes[name]
        if node.core is None:
            return
        self.note(f"{name} {'loses power' if power else 'is killed'}")
        self.ledger_of(name).oracle.before_stop(name, node.core)
        node.core = None
        node.clock.step_ns = 0
        node.stands_still = node.is_busy = False
        node.waiting.clear()
        self._turns.discard(name)  # A turn that waited is none of the next process's.
        node.store.crash(power=power)
        self.ledger_of(name).unwatch(name)
        node.tick_at_us = 0
        for action in node.on_down:
            action()
        for other in self.names:
            if other != name:
                self._link_down(name, other)

    # ---- brokers that stand still ---------------------------------------------------------------------------------

    def stand_still(self, name: str, ms: float) -> None:
        """A process does nothing for a while (SIGSTOP, a paused machine, no processor time); the others give its links up."""
        node = self.nodes[name]
        if node.awake is None:
            return
        self.note(f"{name} stands still for {ms:.0f} ms")
        node.stands_still = True
        since_us, process = self.now_us, node.process
        node.still_since_us = since_us
        self.at(ms, lambda: self._wake(node, process, since_us))
        if ms > SILENCE_MS:
            self.at(SILENCE_MS + self.rng.random() * 200, lambda: self._give_up(node, process, since_us))

    def _give_up(self, node: Node, process: int, since_us: int) -> None:
        if node.stands_still and (node.process, node.still_since_us) == (process, since_us):
            for other in self.names:
                if other != node.name:
                    self._link_down(node.name, other)

    def _wake(self, node: Node, process: int, since_us: int) -> None:
        """It goes on: with what its time says is due, or with what waited in its sockets."""
        core = node.core
        if (
            not node.stands_still
            or (node.process, node.still_since_us) != (process, since_us)
            or core is None
        ):
            return
        node.stands_still = node.is_busy = False
        self.note(f"{node.name} goes on")
        if self.rng.random() < 0.5:
            self._goes_round(node)
            core.tick()
        if self.now_us - since_us > SILENCE_MS // 2 * 1000:
            node.woke_us = self.now_us
            core.stood_still()
        self._catch_up(node, core)
        for other in self.names:
            if other != node.name:
                self.at(5 + self.rng.random() * 50, partial(self._relink, node.name, other))
        if node.core is core:
            self._after(node)
            self.want_turn(node.name)

    def _catch_up(self, node: Node, core: BrokerCore) -> None:
        waiting, node.waiting = node.waiting, []
        for action in waiting:
            if node.core is core:
                action()

    def _is_busy_for(self, node: Node, ms: float) -> None:
        """A turn takes so long: what arrives meanwhile waits."""
        node.is_busy = True
        core, process = node.core, node.process

        def over() -> None:
            if node.core is not core or core is None or node.process != process or not node.is_busy:
                return
            node.is_busy = False
            if ms >= LONG_TURN_MS and node.waiting:
                self.met["busy turn"] += 1
            if not node.stands_still:
                self._catch_up(node, core)

        self.at(ms, over)

    def wake(self, name: str) -> None:
        """It goes on now, if it stands still."""
        node = self.nodes[name]
        self._wake(node, node.process, node.still_since_us)

    def waits(self, name: str, action: Callable[[], None]) -> bool:
        """Does the broker stand still, or work? Then this happens when it goes on."""
        node = self.nodes[name]
        if node.stands_still or node.is_busy:
            node.waiting.append(action)
        return node.stands_still or node.is_busy

    def _goes_round(self, node: Node) -> None:
        before_ms = node.clock.stall_ms
        node.clock.goes_round()
        if node.clock.stall_ms != before_ms and node.core is not None:
            node.core.peer_stalls(node.core.node, node.clock.stall_ms)
            for other in self.names:
                if (node.name, other) in self._links:
                    self.at(1 + self.rng.random(), partial(self._tell_stall, node, other))

    def _tell_stall(self, node: Node, other: str) -> None:
        core = self.nodes[other].awake
        if core is not None and (node.name, other) in self._links:
            core.peer_stalls(self.called(other, node.name), node.clock.stall_ms)

    def _tell_clock(self, to: str, node: Node, clock_ns: int) -> None:
        core = self.nodes[to].awake
        if core is not None and (node.name, to) in self._links:
            core.peer_clock(self.called(to, node.name), clock_ns)

    def _pulse(self, node: Node, process: int) -> None:
        if node.core is None or node.process != process:
            return
        if not node.stands_still and not node.is_busy:
            self._goes_round(node)
            for other in self.names:
                if (node.name, other) in self._links and (node.name, other) not in self._silent:
                    self.at(2, partial(self._tell_clock, other, node, node.clock.now_ns()))
        self.at(PULSE_MS, lambda: self._pulse(node, process))

    def lose_volume(self, name: str) -> None:
        """The broker's directory is gone; it is down."""
        node = self.nodes[name]
        assert not node.up
        self.note(f"{name} loses its volume")
        node.store.destroy()

    def _arm(self, node: Node) -> None:
        core = node.core
        assert core is not None
        process = node.process

        wait_ms = core.next_deadline_ms() - node.clock.monotonic_ms()
        due_us = self.now_us + max(1, min(wait_ms, 10_000)) * 1000 + 20
        if node.tick_at_us == 0 or due_us < node.tick_at_us:
            node.tick_at_us = due_us

            def fire() -> None:
                # An earlier deadline may have been set since: then this one is void.
                if node.core is core and node.process == process and node.tick_at_us == due_us:
                    if self.waits(node.name, fire):
                        return
                    node.tick_at_us = 0
                    self._goes_round(node)
                    core.tick()
                    self._after(node)

            self.at((due_us - self.now_us) / 1000, fire)

    def want_turn(self, name: str) -> None:
        """Let the broker work once on all that arrives at about this time."""
        if name in self._turns:
            return
        self._turns.add(name)
        node = self.nodes[name]
        core = node.core

        def run() -> None:
            if core is not None and node.core is core and self.waits(name, run):
                return
            self._turns.discard(name)
            if core is not None and node.core is core:
                self._goes_round(node)
                core.turn()
                self._after(node)
                if node.core is core and (ms := self.turn_ms()):
                    self._is_busy_for(node, ms)

        delay_ms = self.rng.random() * 0.2
        if node.slow_until_us > self.now_us:
            delay_ms += self.rng.random() * 40
        self.at(delay_ms, run)

    def _after(self, node: Node) -> None:
        core = node.core
        if core is None:
            return
        ledger = self.ledger_of(node.name)
        ledger.oracle.after_turn(node.name, core)
        ledger.recoveries.after_turn(node.name, core)
        ledger.maps.after_turn(node.name, core)
        if core.has_work:
            self.want_turn(node.name)
        self._arm(node)

    # ---- links ----------------------------------------------------------------------------------------------------

    def _link_up(self, one: str, other: str) -> None:
        self._number += 1
        epoch = self._number
        self._links[one, other] = self._links[other, one] = epoch
        for channel in Channel:
            self._busy_until.pop((one, other, channel), None)
            self._busy_until.pop((other, one, channel), None)
        for here, there in ((one, other), (other, one)):
            self.at(self.rng.random() * 2, partial(self._tell_up, here, there, epoch))

    def _tell_up(self, here: str, there: str, epoch: int) -> None:
        node, peer = self.nodes[here], self.nodes[there]
        if self.waits(here, partial(self._tell_up, here, there, epoch)):
            return
        if self._links.get((here, there)) != epoch or node.core is None or peer.core is None:
            return
        info = PeerInfo(
            node=self.called(here, there),
            cluster=self.cluster_of[there],
            incarnation=peer.store.incarnation,
            process=f"{there}-{peer.process}",
            client_url="",
            meta_state=peer.core.meta_state,
            version=frames.VERSION,
            tags=self.tags_of.get(there, ()),
            lineage=peer.core.map.lineage,
            bootstrap_id=peer.core.map.bootstrap_id,
            process_count=peer.core.store.process_count,
        )
        self._announce(here, there, info)
        self.want_turn(here)

    def _announce(self, here: str, there: str, info: PeerInfo) -> None:
        core = self.nodes[here].core
        assert core is not None
        core.on_link_up(info)

    def _link_down(self, one: str, other: str) -> None:
        if self._links.pop((one, other), None) is None:
            return
        self._links.pop((other, one), None)
        for here, there in ((one, other), (other, one)):
            if not self.waits(here, partial(self._tell_down, here, there)):
                self._tell_down(here, there)

    def _tell_down(self, here: str, there: str) -> None:
        core = self.nodes[here].core
        if core is not None and self._knows(core, self.called(here, there)):
            self._withdraw(here, there)
            self.want_turn(here)

    def _withdraw(self, here: str, there: str) -> None:
        core = self.nodes[here].core
        assert core is not None
        core.on_link_down(self.called(here, there))

    def called(self, here: str, there: str) -> str:
        """What the broker `here` calls the broker `there`."""
        return there

    def _may_link(self, one: str, other: str) -> bool:
        """Are both there, and nothing between them cut?"""
        pair = frozenset((one, other))
        is_cut = pair in self._cut or pair in self._cut_for_long
        return not is_cut and self.nodes[one].awake is not None and self.nodes[other].awake is not None

    def cut(self, one: str, other: str, *, lasts: bool = False) -> None:
        """No link between two brokers until `mend`, or until `mend_lasting`."""
        (self._cut_for_long if lasts else self._cut).add(frozenset((one, other)))
        self._link_down(one, other)

    def reset(self, one: str, other: str) -> None:
        """Break a link; it comes up again at once, without what was on the way."""
        if (one, other) in self._links:
            self._link_down(one, other)
            self.at(5 + self.rng.random() * 50, lambda: self._relink(one, other))

    def _relink(self, one: str, other: str) -> None:
        if (one, other) not in self._links and self._may_link(one, other):
            self._link_up(one, other)

    def mend(self) -> None:
        """Every cut ends, but those that last."""
        self._cut.clear()
        self._relink_all()

    def mend_lasting(self) -> None:
        """The cuts that last end too, and so do silences."""
        self._cut_for_long.clear()
        self._silent.clear()
        self._relink_all()

    def _relink_all(self) -> None:
        for number, one in enumerate(self.names):
            for other in self.names[number + 1 :]:
                self._relink(one, other)

    def silence(self, one: str, other: str, ms: float) -> None:
        """A link that stays up and carries nothing for a while."""
        self.silence_way(one, other, ms)
        self.silence_way(other, one, ms)

    def silence_way(self, frm: str, to: str, ms: float) -> None:
        """One end of a link does not hear the other for a while, and is heard."""
        self._silent.add((frm, to))
        self.at(ms, lambda: self._silent.discard((frm, to)))

    def send(
        self, frm: str, to: str, frame_type: int, body: bytes, channel: Channel = Channel.CONTROL
    ) -> bool:
        """A frame from broker to broker. Each link of a pair has its order and its bandwidth: one overtakes the other."""
        epoch = self._links.get((frm, to))
        sender = self.nodes[frm].core
        if epoch is None or sender is None or not self._knows(sender, self.called(frm, to)):
            return False
        rng, faults = self.rng, self.faults
        way = (frm, to, channel)
        carry_us = 0
        if faults.bulk_bytes_per_ms:
            per_ms = faults.bulk_bytes_per_ms * (CONTROL_SHARE if channel is Channel.CONTROL else 1)
            if (self._busy_until.get(way, 0) - self.now_us) / 1000 * per_ms > faults.queue_bytes_max:
                return False
            carry_us = int(len(body) / per_ms * 1000)
        self.sent_bytes[channel] += len(body)
        if (frm, to) in self._silent or (faults.loss and rng.random() < faults.loss):
            return True
        copies = 2 if faults.repeat and rng.random() < faults.repeat else 1
        for _ in range(copies):
            delay_us = 50 + int(rng.random() * faults.delay_max_ms * 1000) + self.way_us(frm, to)
            at_us = max(self.now_us, self._busy_until.get(way, 0) if carry_us else 0) + delay_us + carry_us
            if not (faults.reorder and rng.random() < faults.reorder):
                at_us = max(at_us, self._busy_until.get(way, 0) + 1)
                self._busy_until[way] = at_us
            self._number += 1
            action: Callable[[], None] = _Arrival(self, frm, to, epoch, frame_type, body)
            heapq.heappush(self._events, (at_us, self._number, action))
        return True

    def way_us(self, frm: str, to: str) -> int:
        """How long a frame takes at least, beyond what the weather makes of it."""
        return 0

    @staticmethod
    def _knows(core: BrokerCore, other: str) -> bool:
        """Was the link's other end announced? The core itself may take it for out of contact (SF-9)."""
        is_out = core.map_lineages.shuts_out(other) or core.put_back.shuts_out(other)
        return other in core.peers.linked or is_out

    def arrive(self, frm: str, to: str, epoch: int, frame_type: int, body: bytes) -> None:
        if self.waits(to, partial(self.arrive, frm, to, epoch, frame_type, body)):
            return
        core, name = self.nodes[to].core, self.called(to, frm)
        if self._links.get((frm, to)) != epoch or core is None or not self._knows(core, name):
            return
        try:
            core.on_frame(name, frame_type, memoryview(body))
        except PutBackError as error:
            # As a process manager would.
            self.note(f"{to} ends: {error}")
            self.stop(to, power=False)
            self.at(200, lambda: self.start(to))
            return
        self.want_turn(to)

    def beside(self, node: str) -> list[str]:
        """The brokers that a client of this one knows."""
        return self.names

    # ---- clients --------------------------------------------------------------------------------------------------

    def on_reply(self, subject: bytes, handler: Callable[[bytes, bytes], None]) -> None:
        """Call `handler(header, payload)` once for a message to a reply subject."""
        self._clients[subject] = handler

    def forget_reply(self, subject: bytes) -> None:
        self._clients.pop(subject, None)

    def to_client(self, subject: bytes, header: bytes, payload: bytes) -> None:
        handler = self._clients.pop(subject, None)
        if handler is not None:
            handler(header, payload)

    def on_inbox(self, inbox: bytes, handler: Callable[[Sequence[Any]], None]) -> None:
        self._inboxes[inbox] = handler

    def deliver(self, inbox: bytes, items: Sequence[Any]) -> None:
        handler = self._inboxes.get(inbox)
        if handler is not None:
            handler(items)


@dataclass(slots=True)
class _Arrival:
    world: World
    frm: str
    to: str
    epoch: int
    frame_type: int
    body: bytes

    def __call__(self) -> None:
        self.world.arrive(self.frm, self.to, self.epoch, self.frame_type, self.body)
