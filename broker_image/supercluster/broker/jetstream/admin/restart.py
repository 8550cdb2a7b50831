"""Preparation of a broker for its restart, over HTTP (`/admin/restart` on that broker).

GET reports the groups that it leads and what its groups lack, POST hands its leaderships over, and DELETE
takes that back. Each broker reports on the groups that it leads or holds, so the answers of all brokers
together cover every group: streams of every account, however they were created, and the map of streams.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from supercluster.broker.jetstream.config.environment import Environment
from supercluster.broker.jetstream.links.leaderships import Leaderships
from supercluster.broker.jetstream.links.peers import Peers
from supercluster.broker.jetstream.node.copies import Copies
from supercluster.broker.jetstream.node.drain import HOLD_MS_MAX, LeadershipDrain
from supercluster.broker.jetstream.replica.contact import is_current
from supercluster.broker.jetstream.replica.lineage import is_meta
from supercluster.broker.jetstream.replica.replica import Replica
from supercluster.broker.raft.confchange import node_of

# So many groups are named; the rest is counted.
SHOWN_MAX = 20
BROKERS_MAX = 1024
MAP_OF_STREAMS = "the map of streams"

Then = Callable[[int, Any], None]


class RestartCalls:
    """The calls at one broker."""

    def __init__(
        self, env: Environment, peers: Peers, copies: Copies, leaderships: Leaderships, drain: LeadershipDrain
    ) -> None:
        self._env = env
        self._peers = peers
        self._copies = copies
        self._leaderships = leaderships
        self._drain = drain

    def call(self, method: str, body: object, then: Then) -> None:
        """One call of the admin API; `then` is called once."""
        if method == "POST":
            problem = self._begin(body)
            if problem:
                then(400, {"error": problem})
                return
        elif method == "DELETE":
            self._drain.end()
        then(202 if method == "POST" else 200, self._state())

    def _begin(self, body: object) -> str:
        """Why the body is none; empty when leaderships go now."""
        given = {} if body is None else body
        if not isinstance(given, dict) or set(given) - {"holdMs", "avoid"}:
            return "the body is an object with holdMs and avoid, or none"
        hold_ms, avoid = given.get("holdMs", HOLD_MS_MAX), given.get("avoid", [])
        if type(hold_ms) is not int or not 1 <= hold_ms <= HOLD_MS_MAX:
            return f"holdMs is {str(hold_ms)[:100]}; it has to be a whole number from 1 to {HOLD_MS_MAX}"
        if (
            not isinstance(avoid, list)
            or len(avoid) > BROKERS_MAX
            or not all(isinstance(n, str) for n in avoid)
        ):
            return f"avoid is {str(avoid)[:100]}; it has to be a list of at most {BROKERS_MAX} brokers' names"
        self._drain.begin(hold_ms, avoid)
        return ""

    def _state(self) -> dict[str, Any]:
        led = 0
        behind: list[dict[str, Any]] = []
        leaderless: list[dict[str, str]] = []
        for group in self._copies.groups.values():
            members = [node_of(member) for member in group.raft.membership.all_voters]
            if group.failed is not None:
                behind.append({**self._name(group), "brokers": [self._env.node], "members": members})
            elif group.serves:
                led += 1
                lacking = self._lacking(group)
                if lacking:
                    behind.append({**self._name(group), "brokers": lacking, "members": members})
            elif self._leaderships.leader_of(group.id) in (
                None,
                self._env.node,
            ):  # The second: it led, and has lost its majority.
                leaderless.append(self._name(group))
        meta = self._copies.map
        return {
            "node": self._env.node,
            "leavesFor": meta.state.leaving.get(self._env.node) if meta is not None else None,
            "leads": led,
            "movable": sum(1 for _ in self._drain.left()),
            "stepsAside": self._drain.is_active,
            "behind": behind[:SHOWN_MAX],
            "behindTotal": len(behind),
            "lacking": sorted({node for entry in behind for node in entry["brokers"]}),
            "leaderless": leaderless[:SHOWN_MAX],
            "leaderlessTotal": len(leaderless),
        }

    def _lacking(self, replica: Replica) -> list[str]:
        """Brokers whose votes count and that are out of contact, or lack what is committed."""
        now_ms = self._env.clock.monotonic_ms()
        return [
            node_of(voter)
            for voter in sorted(replica.raft.membership.all_voters)
            if voter != replica.member
            and (node_of(voter) not in self._peers.linked or not is_current(replica, voter, now_ms))
        ]

    def _name(self, replica: Replica) -> dict[str, str]:
        copy = self._copies.streams.get(replica.id)
        if copy is not None:
            return {"account": copy.stream.assignment.account, "name": copy.stream.assignment.name}
        return {"account": "", "name": MAP_OF_STREAMS if is_meta(replica.id) else replica.id}
