"""What goes wrong: brokers killed, machines without power, volumes lost or damaged, disks full, links cut and silent.

Some faults take data with them. They come only where the promises cover them (SF-1, SF-4): never so many at once that a
majority may be unsure of what it had. A broker is unsure from such a fault on until it was seen whole again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

from tests.simulator.bad_disks import BadDisks
from tests.simulator.bad_links import BadLinks
from tests.simulator.bad_volumes import BadVolumes
from tests.simulator.clocks import WrongClocks
from tests.simulator.moments import Moments
from tests.simulator.plan import Plan
from tests.simulator.rare import draw_rare
from tests.simulator.world import Faults, Node, World

from supercluster.broker.jetstream.replica.lineage import META_GROUP
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.storage.segments.segment import SEGMENT_SUFFIX
from supercluster.broker.storage.volume.registry import REGISTRY
from supercluster.broker.storage.volume.volume import VOLUME


def _needs_restart(replica: Replica) -> bool:
    """Was it a log that only a new process may open again? The meta group's is not opened anew at all."""
    return replica.failed is not None and (replica.id == META_GROUP or not replica.log.may_ever_open_anew)


def _turn_ms(rng: random.Random) -> float:
    """Most turns are short; one in some hundred takes as long as an election."""
    lot = rng.random()
    return rng.random() * (600.0 if lot < 0.003 else 150.0 if lot < 0.03 else 2.0)


class Weather:
    """See the module."""

    def __init__(self, world: World, plan: Plan, step_down: Callable[[], None]) -> None:
        self.world = world
        self.plan = plan
        self.rare = draw_rare(world.seed, plan)
        self.rng = world.rng
        self.calm = False
        self.is_each_synced = plan.fsync == "always"
        """Does a power failure take nothing that was confirmed?"""
        self.quiet_until_us = 0
        self.main_group = ""
        self._unsure: set[str] = set()
        self._scars: dict[str, tuple[str, str]] = {}
        """Damage that nobody may have noticed: broker → (group, member)."""
        self._step_down = step_down
        world.on_crash = self._restart_soon
        Moments(world, plan, self)
        self._bad_disks = BadDisks(self)
        self._lots = random.Random(f"starts {world.seed}")
        self.clocks = WrongClocks(self, random.Random(f"clocks {world.seed}"))
        self._acts: dict[str, Callable[[], None]] = {
            "kill": self._kill,
            "cut": self._cut,
            "blink": self._blink,
            "power": lambda: self._kill(power=True),
            "reset": self._reset,
            "slow": self._slow,
            "stand_down": step_down,
            "crash_in_write": self._crash_in_write,
            "lag_and_lose": self._lag_and_lose,
            "volume": self._lose_volume,
            "damage": self._damage,
            "copy": self._lose_copy,
            "full_disk": self._full_disk,
            "disk_errors": self._disk_errors,
            "sync_errors": self._sync_errors,
            "black_hole": self._black_hole,
            "lull": self._lull,
            "blackout": self._blackout,
        }

    def start(self, end_ms: float) -> None:
        """Draw the links' weather, and one fault after the other."""
        rng = self.rng
        for node in self.world.nodes.values():
            node.store.has_boot_id = not self.rare.no_boot_id
        if rng.random() < 0.5:
            self.world.faults = Faults(
                loss=rng.choice((0.0, 0.005, 0.03)),
                repeat=rng.choice((0.0, 0.01)),
                reorder=rng.choice((0.0, 0.02, 0.1)),
                delay_max_ms=rng.choice((1.0, 5.0, 30.0)),
            )
        # Drawn apart: what else a seed stands for stays.
        thin = random.Random(f"thin {self.world.seed}")
        if thin.random() < 0.3:
            self.world.faults.bulk_bytes_per_ms = thin.choice((100.0, 400.0, 2000.0))
            self.world.faults.queue_bytes_max = 256 << 10
        self._draw_limits()
        self._draw_pauses(random.Random(f"pauses {self.world.seed}"), end_ms)
        self._bad_disks.start(end_ms)
        BadLinks(self).start(end_ms)
        BadVolumes(self).start(end_ms)
        if self.rare.clocks:
            self.clocks.start(end_ms)
        at_ms = 1500 + rng.random() * 1500
        while at_ms < end_ms - 1000:
            self.world.at(at_ms, self._fault)
            at_ms += 400 + rng.random() * 4000
        self.world.at(1000, self._look_after)

    def _draw_limits(self) -> None:
        """In some runs frames carry little, or turns take time."""
        if self.rare.small_frames:
            lots = random.Random(f"small frames {self.world.seed}")
            self.world.frame_limits["append_bytes_max"] = lots.choice((200, 1000, 4000))
            self.world.frame_limits["snapshot_chunk_bytes"] = lots.choice((100, 1000))
        if self.rare.busy_turns:
            busy = random.Random(f"busy turns {self.world.seed}")
            self.world.turn_ms = partial(_turn_ms, busy)

    def _draw_pauses(self, rng: random.Random, end_ms: float) -> None:
        """In some runs brokers stand still, for up to 15 s, or get little processor time for a while (SF-29)."""
        if rng.random() >= 0.35:
            return
        at_ms = 2500.0
        while (at_ms := at_ms + 1000 + rng.random() * 6000) < end_ms - 500:
            name = rng.choice(self.world.names)
            if rng.random() < 0.6:
                ms = rng.choice((300.0, 900.0, 3000.0, 15_000.0)) * (0.7 + 0.3 * rng.random())
                self.world.at(at_ms, partial(self._stand_still, name, ms))
            else:
                names = [name] if rng.random() < 0.5 else self.world.names
                for each in names:
                    self.world.at(
                        at_ms, partial(self._starve, each, at_ms + 4000, random.Random(rng.random()))
                    )

    def _stand_still(self, name: str, ms: float) -> None:
        if not self.calm:
            self.world.stand_still(name, ms)

    def _starve(self, name: str, until_ms: float, rng: random.Random) -> None:
        """The broker works for milliseconds, and then stands still for hundreds of them, over and over."""
        if self.calm or self.world.now_us >= until_ms * 1000:
            return
        gap_ms = 50 + rng.random() * rng.choice((300, 1200))
        self.world.stand_still(name, gap_ms)
        self.world.at(gap_ms + 1 + rng.random() * 10, partial(self._starve, name, until_ms, rng))

    @property
    def is_quiet(self) -> bool:
        return self.world.now_us < self.quiet_until_us

    def clear(self) -> None:
        """The end of all faults."""
        world = self.world
        world.note("the weather clears")
        self.calm = True
        world.faults = Faults(delay_max_ms=1.0)
        world.turn_ms = lambda: 0.0
        world.mend()
        world.mend_lasting()
        self.clocks.right()
        world.away.clear()
        self._bad_disks.exchange()
        for name, node in world.nodes.items():
            disk = node.store.disk
            disk.capacity_bytes, disk.failing_writes, disk.failing_syncs = 1 << 50, 0, 0
            disk.heal()
            disk.crash_after(None)  # Before it goes on, which may be what it would have died of.
            world.wake(name)
            node.slow_until_us = 0
            world.start(name)

    def _fault(self) -> None:
        kinds = self.plan.faults
        kind = self.rng.choices(list(kinds), list(kinds.values()))[0]
        self._acts[kind]()

    def _look_after(self) -> None:
        """As a person or a process manager would: a broker whose disk failed is started anew, where it does not help
        itself."""
        for name, node in self.world.nodes.items():
            core = node.core
            is_stuck = core is not None and any(_needs_restart(group) for group in core.groups.values())
            if is_stuck and (self.calm or not self.rare.no_boot_id or self.may_stop(name, power=False)):
                self.world.note(f"{name} is restarted after a failure of its disk")
                self.stop(name)
                self.start_in(name, 200)
        self.world.at(1000, self._look_after)

    # ---- who may be hurt ------------------------------------------------------------------------------------------

    def may_lose_data(self, victim: str) -> bool:
        """May the victim lose what it has confirmed?"""
        for name, (group_id, member) in list(self._scars.items()):
            core = self.world.nodes[name].core
            group = core.groups.get(group_id) if core is not None else None
            if group is not None and (group.member != member or (name, group_id) in self.world.told_lost):
                # It was noticed, and the copy is being made anew.
                del self._scars[name]
                self._unsure.add(name)
        self._unsure |= self._newcomers()
        for name in list(self._unsure):
            if self._is_whole(name):
                self._unsure.discard(name)
        return len({*self._unsure, *self._scars, victim}) <= self.plan.may_lose

    def is_unsure(self, victim: str) -> None:
        """It may lack what it has confirmed, until it was seen whole again."""
        self._unsure.add(victim)

    def is_scarred(self, victim: str, copy: Replica) -> None:
        """The files of its copy are damaged, which nobody may have noticed."""
        self._unsure.add(victim)
        self._scars[victim] = (copy.id, copy.member)
        self.world.told_lost.discard((victim, copy.id))

    def _newcomers(self) -> set[str]:
        """Brokers whose copy is not the member that the map has there, without any fault of ours: a founder that opens its copy
        only behind a scale-up comes as somebody new, and the place it was to have is as good as lost until then (seed 39)."""
        found: set[str] = set()
        for name, node in self.world.nodes.items():
            core = node.core
            if core is None or core.meta is None:
                continue
            for assignment in core.meta.state.streams.values():
                here = [member for member in assignment.members if member.startswith(f"{name}@")]
                group = core.groups.get(assignment.group)
                if here and group is not None and group.member not in here:
                    found.add(name)
        return found

    def _is_whole(self, name: str) -> bool:
        """Is the broker a sure voter of all it should hold, with everything that is committed?"""
        node = self.world.nodes[name]
        if node.crash_with_power and node.store.disk.will_crash:
            return False  # The power failure that hit it already is still to come (`_crash_in_write`).
        if self._restart_loses and node.store.disk.will_refuse:
            return False  # So is the restart that this may take (`_may_fail`).
        core = node.core
        if core is None or core.meta is None or not core.map.is_fresh:
            return False
        histories = self.world.ledger.groups
        wanted = [
            f for f in core.meta.state.streams.values() if any(m.startswith(f"{name}@") for m in f.members)
        ]
        groups: list[Replica | None] = [core.meta, *(core.groups.get(found.group) for found in wanted)]
        for group in groups:
            if group is None or group.failed is not None or group.raft.doubtful:
                return False
            history = histories.get(group.id)
            if history is not None and group.applied_index < history.last_index:
                return False
            voters = group.raft.committed_membership.voters
            votes = group is not core.meta or any(voter.startswith(f"{name}@") for voter in voters)
            if votes and group.member not in voters:
                return False
        return True

    def _victim(self) -> str | None:
        """Somebody who is up; the stream's leader half of the time: that is where it hurts."""
        up = [name for name in self.world.names if self.world.nodes[name].up]
        if len(up) < 2:
            return None
        leader = self.leader()
        if leader is not None and self.rng.random() < 0.55:
            return leader
        return self.rng.choice(up)

    def leader(self) -> str | None:
        for name, node in self.world.nodes.items():
            group = node.core.groups.get(self.main_group) if node.core is not None else None
            if group is not None and group.serves:
                return name
        return None

    # ---- brokers --------------------------------------------------------------------------------------------------

    def stop(self, name: str, *, power: bool = False) -> None:
        """The process ends, by kill or with the machine."""
        if not self.world.nodes[name].up:
            return
        power_counts = power or self.rare.no_boot_id
        if (power_counts and not self.is_each_synced) or self.plan.storage == "memory":
            self._unsure.add(name)
        self.world.stop(name, power=power)

    def may_stop(self, name: str, *, power: bool) -> bool:
        # Also with fsync on every append a write that the power tore leaves a doubtful copy, which waits for a sure one; with
        # the copy of another broker damaged that might be one too many (seed 61).
        power_counts = power or self.rare.no_boot_id
        loses = (
            power_counts and (not self.is_each_synced or bool(self._scars))
        ) or self.plan.storage == "memory"
        return not loses or self.may_lose_data(name)

    @property
    def _restart_loses(self) -> bool:
        """Does a restart count as a power failure that may have taken what was confirmed?"""
        return self.rare.no_boot_id and not self.is_each_synced

    def _may_fail(self, victim: str) -> bool:
        """May its disk refuse something? A copy may need a restart then: where that loses, the broker is as good as unsure from
        now on (seed 741166)."""
        if self._restart_loses:
            if not self.may_lose_data(victim):
                return False
            self._unsure.add(victim)
        return True

    def start_in(self, name: str, ms: float) -> None:
        self.world.at(ms, lambda: self._start(name))

    def _start(self, name: str) -> None:
        """In some runs the process, or its machine, ends while it starts."""
        node = self.world.nodes[name]
        if self.rare.crash_at_start and not self.calm and not node.up and self._lots.random() < 0.3:
            self._will_crash(node, power=self._lots.random() < 0.4, operations=self._lots.randrange(40))
        self.world.start(name)

    def _will_crash(self, node: Node, *, power: bool, operations: int) -> None:
        """It ends in the middle of a change of its disk, which may tear it; with the machine, if it may."""
        power = power and self.may_stop(node.name, power=True)
        if not power and not self.may_stop(node.name, power=False):
            return
        if (power or self.rare.no_boot_id) and not self.is_each_synced:
            self._unsure.add(node.name)
        node.crash_with_power = power
        node.store.disk.crash_after(operations)

    def _restart_soon(self, name: str) -> None:
        self.start_in(name, self._pause_ms())

    def _pause_ms(self) -> float:
        return self.rng.choice((5, 50, 200)) + self.rng.random() * self.rng.choice((30, 1000, 3000))

    def strike(self, victim: str, *, power: bool) -> None:
        """This process ends for a moment, by kill or with its machine, if the weather lasts and nothing is lost by that."""
        if not self.calm and not self.is_quiet and self.may_stop(victim, power=power):
            self.stop(victim, power=power)
            self.start_in(victim, 20 + self.rng.random() * 100)

    def _kill(self, *, power: bool = False) -> None:
        victim = self._victim()
        if victim is not None and self.may_stop(victim, power=power):
            self.stop(victim, power=power)
            self._restart_soon(victim)

    def _blackout(self) -> None:
        """The power fails for all at once. With fsync on every append nothing that was confirmed may be missing."""
        for name in self.world.names:
            self.stop(name, power=True)
            self.start_in(name, 100 + self.rng.random() * 2000)

    def _crash_in_write(self) -> None:
        """The process (or the machine) ends in the middle of a change of its disk, which may tear it."""
        victim = self._victim()
        if victim is None or self.plan.storage == "memory":
            return
        power = self.rng.random() < 0.5
        self._will_crash(self.world.nodes[victim], power=power, operations=self.rng.randrange(60))

    # ---- what is lost ---------------------------------------------------------------------------------------------

    def _lose_volume(self) -> None:
        victim = self._victim()
        if victim is not None and self.may_lose_data(victim):
            self._without_volume(victim)
            self._restart_soon(victim)

    def _without_volume(self, victim: str) -> None:
        self.stop(victim)
        self._unsure.add(victim)
        self.world.lose_volume(victim)

    def _lose_copy(self) -> None:
        """One group's directory is gone from a stopped broker's volume, which remembers that it was a member."""
        victim = self._victim()
        core = self.world.nodes[victim].core if victim is not None else None
        if victim is None or core is None or self.plan.storage == "memory" or not self.may_lose_data(victim):
            return
        group = self.rng.choice(sorted(core.groups)) if core.groups else ""
        self.stop(victim)
        self._unsure.add(victim)
        self.world.note(f"{victim} loses its copy of {group}")
        self.world.nodes[victim].store.lose_copy(group)
        self._restart_soon(victim)

    def _damage(self) -> None:
        """A bit of a stopped broker's files turns over: a record that was committed may be gone."""
        victim = self._victim()
        if victim is not None and self.plan.storage != "memory" and self.may_lose_data(victim):
            if self._lots.random() < 0.2:
                self._with_damaged_volume(victim)
            else:
                self._with_damage(victim)
            self._restart_soon(victim)

    def _with_damaged_volume(self, victim: str) -> None:
        """A bit of what says who the broker is, and which groups it has joined."""
        core, node = self.world.nodes[victim].core, self.world.nodes[victim]
        group = core.groups.get(self.main_group) if core is not None else None
        self.stop(victim)
        if group is None:
            return
        self.is_scarred(victim, group)
        path = self._lots.choice((VOLUME, REGISTRY, REGISTRY))
        bit = self._lots.randrange(8 * node.store.disk.size(path))
        node.store.disk.flip_bit(path, bit)
        node.store.may_be_another = True
        self.world.met["damaged volume"] += 1
        self.world.note(f"{victim}: bit {bit} of {path} turns over")

    def _loses_file(self, victim: str, files: list[str]) -> bool:
        """One of the files of a copy is gone, but for the last segment: without its end nobody knows how far a log went."""
        last = [path for path in files if path.endswith(SEGMENT_SUFFIX)][-1:]
        files = [path for path in files if path not in last]
        if not files or self._lots.random() >= 0.15:
            return False
        path = self._lots.choice(files)
        self.world.nodes[victim].store.disk.lose(path)
        self.world.met["lost file"] += 1
        self.world.note(f"{victim}: {path} is gone")
        return True

    def _with_damage(self, victim: str, *, newest: bool = False) -> None:
        core = self.world.nodes[victim].core
        group = core.groups.get(self.main_group) if core is not None else None
        self.stop(victim)
        store = self.world.nodes[victim].store
        files = store.files_of(self.main_group)
        if newest:
            files = [path for path in files if path.endswith(".seg")][-1:]
        if files and group is not None:
            self.is_scarred(victim, group)
            if not newest and self._loses_file(victim, files):
                return
            path = self.rng.choice(files)
            size_bits = 8 * store.disk.size(path)
            bit = (
                size_bits - 1 - self.rng.randrange(min(size_bits, 4000))
                if newest
                else self.rng.randrange(size_bits)
            )
            if bit % 4 == 3 and path.endswith((".seg", ".idx", ".ckpt")):
                store.disk.spoil(path)
                self.world.note(f"{victim}: {path} cannot be read any more")
            else:
                store.disk.flip_bit(path, bit)
                self.world.note(f"{victim}: bit {bit} of {path} turns over")

    def _lag_and_lose(self) -> None:
        """The scenario of SF-4: only the leader and A have the newest entries; A loses them and the leader goes away.
        C, which never had them, must not be elected with A's vote."""
        leader = self.leader()
        others = self._followers(leader)
        if leader is None or len(others) < 2 or not self.may_lose_data(others[0]):
            return
        loser, laggard = others[:2]
        for name in self.world.names:
            if name != laggard:
                self.world.cut(laggard, name)
        self.world.note(f"{laggard} lags behind")

        def strike() -> None:
            if self.calm or not self.may_lose_data(loser) or not self.world.nodes[loser].up:
                return
            how = self.rng.random()
            if how < 0.4:
                self._without_volume(loser)
            elif how < 0.65 and self.plan.storage != "memory":
                self._with_damage(loser, newest=True)
            else:
                self._unsure.add(loser)
                self.stop(loser, power=True)
            if self.may_stop(leader, power=False):
                self.stop(leader)
                self.start_in(leader, 1500 + self.rng.random() * 3000)
            self.world.mend()
            self.start_in(loser, 5 + self.rng.random() * 200)

        self.world.at(200 + self.rng.random() * 600, strike)
        self.world.at(900, self.world.mend)

    def _followers(self, leader: str | None) -> list[str]:
        core = self.world.nodes[leader].core if leader is not None else None
        group = core.groups.get(self.main_group) if core is not None else None
        if group is None:
            return []
        found = [voter.partition("@")[0] for voter in group.raft.membership.voters]
        found = [name for name in found if name != leader and self.world.nodes[name].up]
        self.rng.shuffle(found)
        return found

    # ---- disks ----------------------------------------------------------------------------------------------------

    def _full_disk(self) -> None:
        victim = self._victim()
        if victim is not None and self._may_fail(victim):
            disk = self.world.nodes[victim].store.disk
            disk.capacity_bytes = disk.used_bytes + self.rng.randrange(20_000)
            self.world.note(f"{victim}: the disk is full at {disk.capacity_bytes} bytes")
            self.world.at(500 + self.rng.random() * 3000, partial(setattr, disk, "capacity_bytes", 1 << 50))

    def _disk_errors(self) -> None:
        victim = self._victim()
        if victim is not None and self._may_fail(victim):
            self.world.note(f"{victim}: writes fail")
            self.world.nodes[victim].store.disk.failing_writes = 1 + self.rng.randrange(4)

    def _sync_errors(self) -> None:
        """What an fsync did not take is in the page cache, clean, and on no platter: the next process reads it, until the
        power fails."""
        victim = self._victim()
        if victim is None or not self._may_fail(victim):
            return
        self.world.note(f"{victim}: fsyncs fail")
        disk = self.world.nodes[victim].store.disk
        disk.failing_syncs = 1 + self.rng.randrange(2)
        disk.failing_syncs_of = self.rng.choice(("", SEGMENT_SUFFIX))

        def strike() -> None:
            if not self.calm and self.may_stop(victim, power=True):
                self.stop(victim, power=True)
                self._restart_soon(victim)

        self.world.at(1000 + self.rng.random() * 2500, strike)

    # ---- links and time -------------------------------------------------------------------------------------------

    def _cut(self) -> None:
        one = self.rng.choice(self.world.names)
        others = [name for name in self.world.names if name != one]
        for other in others if self.rng.random() < 0.6 else others[:1]:
            self.world.cut(one, other)
        self.world.note(f"{one} is cut off")
        self.world.at(200 + self.rng.random() * 3000, self.world.mend)

    def _blink(self) -> None:
        """The leader is cut off for less than it takes to notice by time that nobody follows any more, and just then its
        clients are busy: what it does meanwhile is overtaken by what the next leader commits."""
        leader = self.leader()
        if leader is None:
            return
        others = [name for name in self.world.names if name != leader]
        lost_ms = 100 + self.rng.random() * 450
        self.world.note(f"{leader} leads and is cut off for {lost_ms:.0f} ms")
        for other in others:
            self.world.cut(leader, other)
        self.world.sought = leader

        def over() -> None:
            self.world.sought = ""
            self.world.mend()

        self.world.at(lost_ms, over)

    def _reset(self) -> None:
        self.world.reset(*self.rng.sample(self.world.names, 2))

    def _black_hole(self) -> None:
        """Links that stay up and carry nothing: nobody is told."""
        one = self.rng.choice(self.world.names)
        ms = 300 + self.rng.random() * 2500
        for other in self.world.names:
            if other != one:
                self.world.silence(one, other, ms)
        self.world.note(f"{one} is not heard for {ms:.0f} ms")

    def _slow(self) -> None:
        node = self.world.nodes[self.rng.choice(self.world.names)]
        node.slow_until_us = self.world.now_us + int(self.rng.random() * 2_000_000)

    def _lull(self) -> None:
        """Nobody publishes, the groups fall silent; then the leader's process is restarted within a heartbeat (SF-7)."""
        self.quiet_until_us = self.world.now_us + 5_000_000
        self.world.note("a lull")

        def strike() -> None:
            leader = self.leader()
            if not self.calm and leader is not None and self.may_stop(leader, power=False):
                self.stop(leader)
                self.start_in(leader, 5 + self.rng.random() * 60)

        self.world.at(3500 + self.rng.random() * 1000, strike)
