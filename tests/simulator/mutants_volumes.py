"""Mutants of what brokers know of each other's volumes (SF-27) and clocks (SF-28)."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.mutation import mutant

VOLUME_MUTANTS = tuple(
    replace(found, recovers="volumes")
    for found in (
        mutant(
            "earlier-states-are-believed",
            "SF-27",
            "A volume that started less often than is known takes part as it is.",
            (
                "jetstream/node/put_back.py",
                "        if peer.process_count and known and is_put_back(peer.process_count, known):\n",
                "        if False:\n",
            ),
        ),
        mutant(
            "put-back-keeps-its-names",
            "SF-27",
            "A volume that was put back has another incarnation, and its old identity in each group.",
            (
                "storage/volume/volume.py",
                "            registry.rename(identity.incarnation)\n",
                "",
            ),
        ),
        mutant(
            "starts-left-out-of-the-map",
            "SF-27",
            "Only running processes remember how often a volume was started.",
            (
                "jetstream/meta/view.py",
                "        return state.processes.get(node, 0)\n",
                "        return 0\n",
            ),
        ),
        mutant(
            "leader-time-by-one-clock",
            "SF-28",
            "A leader believes its own clock, whatever the others' clocks show.",
            (
                "jetstream/core/agreed_clock.py",
                "        return own_ns if self._most_ns is None else min(own_ns, self._machine_ns() + self._most_ns)\n",
                "        return own_ns\n",
            ),
        ),
        mutant(
            "loss-goes-unnoticed",
            "SF-27",
            "A member that lacks what it had confirmed to its leader goes on as if nothing had happened.",
            (
                "raft/follower.py",
                "        if message.commit > self.log.last_index and not self.state.doubtful:\n",
                "        if False:\n",
            ),
        ),
        mutant(
            "loss-is-made-up-for",
            "SF-27",
            "A leader sends a member what it lost, before that knows that it lost it.",
            (
                "raft/leader.py",
                "        if message.last_index < min(progress.confirmed, self.state.commit_index) and not message.doubtful:\n",
                "        if False:\n",
            ),
        ),
    )
)
