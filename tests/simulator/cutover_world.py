"""Two super-clusters, blue and green, in one simulated network: each has its own identity, map of streams and meta group.

Brokers of both may have the same names; the world calls each by its key (`blue-0`), and a broker calls one of the other side by
its far name. Far links are there while blue's map has a migration, take longer, and may carry one way only.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tests.simulator.cutover_plan import BLUE, GREEN, CutoverPlan, Sides
from tests.simulator.ledger import Ledger
from tests.simulator.world import Node, World

from supercluster.broker.jetstream.config.core_settings import CoreSettings
from supercluster.broker.jetstream.core.broker import BrokerCore
from supercluster.broker.migration.worlds import far_name, world_id
from supercluster.broker.ports import Channel, PeerInfo

IDENTITY = {BLUE: "identity-of-blue", GREEN: "identity-of-green"}
WORLD = {side: world_id(identity) for side, identity in IDENTITY.items()}
# How often a broker of blue looks whether far links are wanted.
LOOK_MS = 50.0


class CutoverWorld(World):
    """See the module."""

    def __init__(self, seed: int, plan: CutoverPlan, rng: random.Random) -> None:
        self.plan = plan
        sides = Sides(plan.equal_names)
        self.side_of, self.own_name = sides.side_of, sides.own_name
        super().__init__(seed, rng=rng, clusters=dict(sides.side_of))
        self.voters = {
            side: tuple(self.own_name[key] for key in self.brokers(side)[: plan.meta_voters])
            for side in (BLUE, GREEN)
        }
        self._keys = {(self.side_of[key], name): key for key, name in self.own_name.items()}
        self._one_way: set[tuple[str, str]] = set()
        self.window_wait_ms = 10_000
        green = Ledger(self)
        green.share_streams(self.ledger)
        self.apart = dict.fromkeys(self.brokers(GREEN), green)
        self.ledgers = (self.ledger, green)
        self.on_serving: Callable[[str, BrokerCore, str], None] = lambda key, core, group: None
        """A broker leads a group, and has done nothing as its leader yet."""
        self.at(LOOK_MS, self._look)

    # ---- who is who ---------------------------------------------------------------------------------------------------

    def brokers(self, side: str) -> list[str]:
        """What the world calls a side's brokers."""
        return [key for key, found in self.side_of.items() if found == side]

    def beside(self, node: str) -> list[str]:
        return self.brokers(self.side_of[node])

    def is_far(self, one: str, other: str) -> bool:
        return self.side_of[one] != self.side_of[other]

    def called(self, here: str, there: str) -> str:
        name = self.own_name[there]
        return far_name(name, WORLD[self.side_of[there]]) if self.is_far(here, there) else name

    def key_of(self, here: str, name: str) -> str:
        """The broker that `here` calls so."""
        own, _, world = name.partition("%")
        side = self.side_of[here]
        if world:
            side = next((found for found, id_ in WORLD.items() if id_ == world), "")
        return self._keys.get((side, own), "")

    def _settings(self, name: str) -> CoreSettings:
        side = self.side_of[name]
        found = super()._settings(name)
        return replace(
            found,
            node=self.own_name[name],
            meta_voters=self.voters[side],
            window_wait_ms=self.window_wait_ms,
            world=WORLD[side],
        )

    # ---- far links ----------------------------------------------------------------------------------------------------

    def _may_link(self, one: str, other: str) -> bool:
        if not super()._may_link(one, other):
            return False
        if not self.is_far(one, other):
            return True
        blue = self.nodes[one if self.side_of[one] == BLUE else other].core
        return blue is not None and wants_far_links(blue)

    def _look(self) -> None:
        """Far links come and go with what the broker of blue knows of migrations."""
        for blue in self.brokers(BLUE):
            for green in self.brokers(GREEN):
                core = self.nodes[blue].core
                if core is not None and (blue, green) in self._links and not wants_far_links(core):
                    self._link_down(blue, green)
                self._relink(blue, green)
        self.at(LOOK_MS, self._look)

    def _announce(self, here: str, there: str, info: PeerInfo) -> None:
        if not self.is_far(here, there):
            super()._announce(here, there, info)
            return
        core = self.nodes[here].core
        assert core is not None
        core.on_far_up(info)

    def _withdraw(self, here: str, there: str) -> None:
        if not self.is_far(here, there):
            super()._withdraw(here, there)
            return
        core = self.nodes[here].core
        assert core is not None
        core.on_far_down(self.called(here, there))

    @staticmethod
    def _knows(core: BrokerCore, other: str) -> bool:
        return other in core.peers.far or World._knows(core, other)

    def send(
        self, frm: str, to: str, frame_type: int, body: bytes, channel: Channel = Channel.CONTROL
    ) -> bool:
        key = self.key_of(frm, to)
        if not key:
            return False
        if (frm, key) in self._one_way:
            return (frm, key) in self._links
        return super().send(frm, key, frame_type, body, channel)

    def way_us(self, frm: str, to: str) -> int:
        return int(self.plan.far_ms * 1000) if self.is_far(frm, to) else 0

    def silence_one_way(self, frm_side: str, ms: float) -> None:
        """What this side says to the other is not heard for a while, and the links stay up."""
        ways = {(a, b) for a in self.brokers(frm_side) for b in self.names if self.is_far(a, b)}
        self.note(f"what {frm_side} says to the other side is not heard for {ms:.0f} ms")
        self._one_way |= ways
        self.at(ms, partial(self._one_way.difference_update, ways))

    def cut_worlds(self) -> None:
        """No far link until `mend`."""
        self.note("the worlds are cut apart")
        for blue in self.brokers(BLUE):
            for green in self.brokers(GREEN):
                self.cut(blue, green)

    def mend(self) -> None:
        self._one_way.clear()
        super().mend()

    def _new_core(self, node: Node) -> BrokerCore:
        core = super()._new_core(node)
        serving = core.host.serving

        def serves(group: str) -> None:
            serving(group)
            self.on_serving(node.name, core, group)

        core.host.serving = serves  # type: ignore[method-assign]
        return core

    # ---- looking ------------------------------------------------------------------------------------------------------

    def cores(self, side: str) -> list[BrokerCore]:
        return [core for key in self.brokers(side) if (core := self.nodes[key].core) is not None]

    def _after(self, node: Node) -> None:
        super()._after(node)
        if node.core is not None:
            self.after_turn(node.name, node.core)

    def after_turn(self, node: str, core: BrokerCore) -> None:
        """The end of a broker's turn."""


def wants_far_links(core: BrokerCore) -> bool:
    """Does the map that this broker has read name a super-cluster to be linked with?"""
    return bool(core.wanted_far())
