"""Mutants of forced recovery: what keeps an older lineage out, and what keeps its end."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.mutation import Mutant, mutant

_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "older-lineage-goes-on",
        "SF-9",
        "Members of an older lineage who hear of the new one go on as before.",
        (
            "jetstream/recovery/stream_lineages.py",
            "        if group_id not in self._kept or group_id in self._copies.groups:\n            log",
            "        if group_id not in self._kept and group_id not in self._copies.groups:\n            log",
        ),
    ),
    mutant(
        "tail-not-kept",
        "SF-9",
        "Copies of an older lineage are closed, and what only they have is not kept.",
        (
            "jetstream/recovery/stream_lineages.py",
            "        if first > last:\n            return\n",
            "        if first > 0:\n            return\n",
        ),
    ),
    mutant(
        "everybody-begins-the-lineage",
        "SF-9",
        "Every old member begins the new lineage with its own copy, under the identity that one of them was given.",
        (
            "jetstream/recovery/stream_lineages.py",
            '        return recovery.member.startswith(f"{self._env.node}@{self._env.store.incarnation}.")\n',
            "        return bool(recovery.member)\n",
        ),
    ),
    mutant(
        "forced-while-it-lives",
        "RP-8",
        "A stream with a leader is recovered by force.",
        (
            "jetstream/meta/stream_recovery.py",
            "    alive = why_alive(found)\n    if alive:\n",
            "    alive = why_alive(found)\n    if alive and not found.members:\n",
        ),
    ),
    mutant(
        "floor-is-ignored",
        "RP-8",
        "A copy that ends before the accepted sequence is taken.",
        (
            "jetstream/meta/stream_recovery.py",
            "        if copy.last_seq >= accepted_seq:\n",
            "        if copy.last_seq >= 0:\n",
        ),
    ),
    mutant(
        "window-fills-nothing",
        "SF-9",
        "A window keeps sending what the new lineage cannot take, since it lacks numbers that were answered for.",
        (
            "jetstream/publish/window.py",
            "        if 0 < from_number <= self.confirmed and self.phase is SessionPhase.OPEN:\n",
            "        if 0 < from_number < 0 and self.phase is SessionPhase.OPEN:\n",
        ),
    ),
    mutant(
        "lineage-begins-empty",
        "SF-9",
        "The chosen broker begins the new group with an empty log.",
        (
            "jetstream/recovery/stream_lineages.py",
            "            self._env.store.register(found.group, recovery.member, home=group_id)\n",
            "            self._env.store.register(found.group, recovery.member)\n",
        ),
    ),
)
RECOVERY_MUTANTS = tuple(replace(found, recovers="stream") for found in _MUTANTS)
