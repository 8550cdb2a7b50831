"""One seeded run: a cluster, streams, clients, and weather that ends. Then everything must come to rest, and be there."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulator.accounts import Limits
from tests.simulator.consumers import INFO, SimConsumer
from tests.simulator.copies import Copies
from tests.simulator.ledger import MAIN, History
from tests.simulator.plan import Plan, draw
from tests.simulator.publishers import ACCOUNT, Publishers
from tests.simulator.rare import LONG_S
from tests.simulator.room import NOTICE_MS, FullDisks
from tests.simulator.weather import Weather
from tests.simulator.world import World

from supercluster.broker.jetstream.config.metadata_keys import FSYNC_KEY
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.jetstream.state.stream import StreamState
from supercluster.broker.jetstream.stream.replica import StreamReplica

SIDE = "SIDE"
# The part of a run in which there is weather.
WEATHER_PART = 0.7


class Scenario:
    """See the module."""

    def __init__(self, seed: int, *, seconds: float = 30.0) -> None:
        rng = random.Random(seed)
        self.plan = plan = self._draw(rng)
        self.world = world = self._new_world(seed, rng)
        world.ledger.keeps_all = plan.keeps_all and plan.retention == "limits"
        world.ledger.retention.kind = plan.retention
        world.ledger.retention.group = self._group_of_main
        world.ledger.nobody_deletes = not plan.removes
        world.ledger.duplicate_window_ns = plan.max_age_ms * 1_000_000
        self.rng = rng
        self.seconds = seconds
        self.group = ""
        self.weather = self._new_weather()
        if self.weather.rare.is_long:
            self.seconds += LONG_S
        self.changes_fsync = self._changes_fsync(seed)
        self.weather.is_each_synced &= not self.changes_fsync
        self.publishers = Publishers(world, plan, lambda: self.weather.is_quiet)
        self.limits = Limits(world, streams_come_and_go=plan.side_stream)
        self.consumer = SimConsumer(world, MAIN, self.request, self._history)
        self.copies = Copies(world, plan, MAIN, self._anywhere, is_on=self._has_copies(seed))
        self._requests = 0
        self._side_generation = 0
        self._side_deletes = 0
        world.note(f"plan: {plan}")

    def _has_copies(self, seed: int) -> bool:
        """Are there streams that take their messages from the main one? Drawn apart: what a seed stands for stays else. Not
        beside a stream that comes and goes, which an account's limit would keep out for them, nor where they would take messages as consumers do."""
        if self.plan.retention != "limits":
            return False
        has_room = not self.plan.fills and not self.plan.side_stream
        return has_room and random.Random(f"copies {seed}").random() < 0.6

    def _changes_fsync(self, seed: int) -> bool:
        """Does a person change the stream's fsync policy now and then? Drawn apart, too. Not where the power may fail for all."""
        may = self.plan.storage == "file" and "blackout" not in self.plan.faults
        return may and random.Random(f"fsync {seed}").random() < 0.3

    def _draw(self, rng: random.Random) -> Plan:
        return draw(rng)

    def _new_world(self, seed: int, rng: random.Random) -> World:
        return World(seed, self.plan.nodes, rng=rng, meta_voters=self.plan.meta_voters)

    def _new_weather(self) -> Weather:
        return Weather(self.world, self.plan, self._step_down)

    # ---- the run --------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All of it; raises `InvariantBrokenError` when a promise does not hold."""
        world = self.world
        for name in world.names:
            world.at(self.rng.random() * 300, partial(world.start, name))
        world.at(700, self._create_main)
        weather_end_ms = self.seconds * 1000 * WEATHER_PART
        self.weather.start(weather_end_ms)
        self.publishers.start(weather_end_ms, MAIN, SIDE)
        self.limits.start(weather_end_ms)
        self.consumer.start(lambda: self.weather.is_quiet)
        self.copies.start()
        if self.plan.side_stream:
            world.at(1500, self._create_side)
        if self.changes_fsync:
            world.at(2000, self._change_fsync)
        if self.plan.removes:
            world.at(3000, self._remove_something)
        world.run(weather_end_ms)
        self.weather.clear()
        self.publishers.weather_is_over()
        world.run(self.seconds * 1000)
        self._settle()
        if self.plan.fills:
            # In life nobody uses up the reserve before the broker looks again: here it is small.
            self.weather.quiet_until_us = world.now_us + int(1000 * (1000 + NOTICE_MS))
            world.run(world.now_us / 1000 + 1000)
            FullDisks(world, MAIN, self._anywhere, self.consumer).run()
            self._settle()
        self._check_end()

    def _history(self) -> History | None:
        return self.world.ledger.groups.get(self._group_of_main())

    # ---- requests -------------------------------------------------------------------------------------------------

    def request(self, node: str, subject: str, body: Any, done: Callable[[dict[str, Any]], None]) -> None:
        """Call the JetStream API at a broker, if it is up."""
        core = self.world.nodes[node].awake
        if core is None or not core.accepts_clients:
            return
        self._requests += 1
        reply = b"_R.%d" % self._requests
        self.world.on_reply(reply, lambda header, payload: done(json.loads(payload) if payload else {}))
        core.on_api(
            INFO, subject.encode(), reply, b"", json.dumps(body).encode() if body is not None else b""
        )
        self.world.want_turn(node)

    def _anywhere(self, subject: str, body: Any, done: Callable[[dict[str, Any]], None]) -> None:
        self.request(self.rng.choice(self.world.names), f"$JS.API.STREAM.{subject}", body, done)

    def _create_main(self) -> None:
        """Until it is there: the request again, to any broker."""

        def created(answer: dict[str, Any]) -> None:
            if "error" in answer:
                self.world.note(f"create: {answer['error']}")
            elif answer:
                self.publishers.known_streams.add(MAIN)
                self.weather.main_group = self._group_of_main()

        if MAIN not in self.publishers.known_streams:
            self._anywhere(f"CREATE.{MAIN}", self.plan.config(MAIN, "orders.>"), created)
            self.world.at(500, self._create_main)

    def _group_of_main(self) -> str:
        if not self.group:
            for node in self.world.nodes.values():
                if node.core is not None and node.core.meta is not None:
                    found = node.core.meta.state.streams.get((ACCOUNT, MAIN))
                    if found is not None:
                        self.group = found.group
        return self.group

    def _create_side(self) -> None:
        """A second stream that is deleted and made again, over and over."""
        generation = self._side_generation

        def created(answer: dict[str, Any]) -> None:
            if not answer or "error" in answer or generation != self._side_generation:
                return
            if SIDE not in self.publishers.known_streams and not self._side_deletes:
                self.publishers.known_streams.add(SIDE)
                if not self.weather.calm:
                    self.world.at(1000 + self.rng.random() * 4000, self._delete_side)

        # In calm weather, too: its publishers end only once it is there.
        if SIDE not in self.publishers.known_streams:
            self._anywhere(f"CREATE.{SIDE}", self.plan.config(SIDE, "side.>"), created)
            self.world.at(700, self._create_side)

    def _delete_side(self) -> None:
        if self.weather.calm:
            return
        self.publishers.known_streams.discard(SIDE)
        self._side_generation += 1
        # Until it is answered it may take effect at any time: nothing is known of the stream then.
        self._side_deletes += 1

        def deleted(answer: dict[str, Any]) -> None:
            if answer and "error" not in answer:
                self._side_deletes -= 1

        self._anywhere(f"DELETE.{SIDE}", None, deleted)
        self.world.at(300 + self.rng.random() * 1000, self._create_side)

    def _change_fsync(self) -> None:
        """A person wants another policy; by which entries were written so far it has no say (SF-4)."""
        if self.weather.calm:
            return
        if self.rng.random() < 0.5:
            self._want_fsync(self.rng.choice(("always", "interval", "always", "never")))
        else:
            # A process is killed under the weaker policy, and the next one's machine goes down under the stronger.
            victim = self.rng.choice(self.world.names)
            self._want_fsync("never")
            self.world.at(600, partial(self.weather.strike, victim, power=False))
            self.world.at(1000 + self.rng.random() * 500, partial(self._want_fsync, "always"))
            self.world.at(2000 + self.rng.random() * 500, partial(self.weather.strike, victim, power=True))
        self.world.at(2500 + self.rng.random() * 3000, self._change_fsync)

    def _want_fsync(self, policy: str) -> None:
        config = self.plan.config(MAIN, "orders.>")
        config["metadata"] = {FSYNC_KEY: policy}
        self._anywhere(f"UPDATE.{MAIN}", config, lambda answer: None)

    def _remove_something(self) -> None:
        """A person deletes a message, or purges."""
        history = self._history()
        if self.weather.calm:
            return
        if history is not None and history.last_seq:
            kind = self.rng.random()
            if kind < 0.6:
                body: dict[str, Any] = {"seq": self.rng.randrange(history.last_seq) + 1}
                self._anywhere(f"MSG.DELETE.{MAIN}", body, lambda answer: None)
            elif kind < 0.8:
                self._anywhere(f"PURGE.{MAIN}", {"filter": "orders.1", "keep": 2}, lambda answer: None)
            else:
                self._anywhere(f"PURGE.{MAIN}", {"seq": history.last_seq}, lambda answer: None)
        self.world.at(300 + self.rng.random() * 2000, self._remove_something)

    def _step_down(self) -> None:
        self._anywhere(f"LEADER.STEPDOWN.{MAIN}", None, lambda answer: None)

    # ---- the end --------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        if not self.world.run_until(self._settled, 40_000):
            raise self.world.ledger.broken(
                f"liveness: not settled 40 s after the last fault: {self._unsettled()}"
            )

    def _settled(self) -> bool:
        # Looked at often: seldom enough to cost nothing.
        return self.world.steps % 64 == 0 and not self._unsettled()

    def _replicas_wanted(self) -> int:
        return self.plan.replicas

    def _unsettled(self) -> str:
        """What there is still to do; "" when everything has come to rest."""
        if not self._group_of_main():
            return "the stream was never created"
        history = self._history()
        if history is None:
            return "the stream's group never started"
        unfinished = self.publishers.unfinished()
        if unfinished:
            return unfinished
        replicas = 0
        for name, node in self.world.nodes.items():
            core = node.core
            if core is None:
                return f"{name} is down"
            for window in core.ingest.windows.values():
                if window.unconfirmed and not (
                    window.stream == SIDE and SIDE not in self.publishers.known_streams
                ):
                    return f"{name} holds {window.unconfirmed} unconfirmed messages of {window.stream}"
            group = core.groups.get(self.group)
            if group is None:
                continue
            replicas += 1
            if group.failed is not None:
                return f"{name} failed: {group.failed}"
            if group.applied_index != history.last_index:
                return f"{name} applied {group.applied_index} of {history.last_index}"
            if group.member not in group.raft.membership.voters:
                return f"{name} is {group.member}, voters are {group.raft.membership.voters}"
            if isinstance(group, StreamReplica):
                overdue = self.world.ledger.lifetimes.overdue(self.group, group.state, core.clock.now_ns())
                if overdue:
                    return f"on {name} {overdue}"
        if replicas != self._replicas_wanted():
            return f"{MAIN} has {replicas} replicas instead of {self._replicas_wanted()}"
        disagreeing = self._disagreeing()
        if disagreeing:
            return disagreeing
        if (
            self.plan.keeps_all
            and self.plan.retention == "limits"
            and len(self.consumer.delivered) < len(history.message_at)
        ):
            return f"the consumer has {len(self.consumer.delivered)} of {len(history.message_at)} messages"
        leaders = (
            node.core.groups[self.group]
            for node in self.world.nodes.values()
            if node.core and self.group in node.core.groups
        )
        origin = next(leaders, None)
        if not isinstance(origin, StreamReplica):
            return ""
        delivered = set(self.consumer.delivered)
        undelivered = self.world.ledger.retention.undelivered(origin.state, history.last_seq, delivered)
        if undelivered:
            return f"the consumer lacks {undelivered} messages ({self.plan.retention})"
        return self.copies.unsettled(origin)

    def _disagreeing(self) -> str:
        """Which replica knows another membership than its group's leader? (MV-7: what is reported is what is in force,
        and who does not know that it is a voter never stands for election.)"""
        leaders: dict[str, Replica] = {}
        groups = [
            group for node in self.world.nodes.values() if node.core for group in node.core.groups.values()
        ]
        for group in groups:
            if group.serves:
                leaders[group.id] = group
        for group in groups:
            leader = leaders.get(group.id)
            if leader is None:
                return f"nobody leads {group.id}"
            known, in_force = group.raft.membership, leader.raft.membership
            if (known.voters, known.voters_outgoing) != (in_force.voters, in_force.voters_outgoing):
                return (
                    f"{group.member} knows {known.voters} as the voters of {group.id}, {in_force.voters} are"
                )
        return ""

    def _check_end(self) -> None:
        world = self.world
        self.publishers.check(MAIN)
        views: dict[str, dict[str, Any]] = {}
        group_id = self._group_of_main()
        for name, node in world.nodes.items():
            group = node.core.groups.get(group_id) if node.core is not None else None
            if isinstance(group, StreamReplica):
                views[name] = _view(group.state)
                missing = world.ledger.lifetimes.missing(group.id, group.state)
                kept = world.ledger.retention.kept(group.state, self.consumer.confirmed)
                if kept:
                    raise world.ledger.broken(f"on {name}: {kept}")
                if missing and not self.plan.removes:
                    raise world.ledger.broken(f"on {name}: {missing}")
        first, *others = views
        for other in others:
            differing = [key for key, value in views[first].items() if views[other][key] != value]
            if differing:
                key = differing[0]
                raise world.ledger.broken(
                    f"replicas differ at the end in {key}: {first} {views[first][key]!r}, {other} {views[other][key]!r}"
                )


def _view(state: StreamState) -> dict[str, Any]:
    """What replicas must agree on. (The subject index also holds hints, which depend on how it came about.)"""
    return {
        "bounds": (state.first_seq, state.last_seq, state.messages, state.bytes, state.applied_index),
        "times": (state.created_ns, state.leader_time_ns, state.last_time_ns),
        "deleted": sorted(state.deleted),
        "subjects": {
            name: (count, state.subjects.last_seq(name.encode()))
            for name, count in state.subjects.subjects().items()
        },
        "message ids": state.message_ids.parts(),
        "ttls": b"".join(state.ttls.encoded()),
        "sessions": state.sessions.encode(),
        "consumers": {name: consumer.snapshot() for name, consumer in state.consumers.items()},
        "config": (state.config, state.config_version),
    }
