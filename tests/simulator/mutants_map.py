"""Mutants of the forced recovery of the map: what keeps lineages apart, and what keeps streams from what an old map says."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.mutation import Mutant, mutant

_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "older-map-goes-on",
        "SF-9",
        "Who hears of a newer lineage of the map goes on working in the old one as well.",
        (
            "jetstream/recovery/map_lineages.py",
            "        self._following = other\n        self._stop()\n",
            "        self._following = other\n",
        ),
    ),
    mutant(
        "unknown-copies-are-dropped",
        "SF-9",
        "Copies of streams that a recovered map does not know are removed, as those of deleted streams are.",
        (
            "jetstream/node/copy_manager.py",
            "        if self.orphans.takes(group_id):\n",
            '        if self.orphans.takes(group_id) and group_id == "":\n',
        ),
    ),
    mutant(
        "map-begins-with-the-end-of-its-log",
        "SF-9",
        "The chosen broker begins the new lineage with what is not applied, without the map that it has.",
        (
            "jetstream/recovery/map_copies.py",
            "        state = MetaState.restore(meta.replica.snapshot())\n",
            "        state = MetaState()\n",
        ),
    ),
    mutant(
        "older-map-is-not-kept",
        "SF-9",
        "Older copies of the map are closed, and what only they have is not kept.",
        (
            "jetstream/recovery/map_copies.py",
            "    if not last or env.store.has_tail(",
            "    if last or env.store.has_tail(",
        ),
    ),
    mutant(
        "map-is-forced-while-it-lives",
        "RP-8",
        "A map that has a leader is recovered by force.",
        (
            "jetstream/meta/map_recovery.py",
            "    if alive:\n",
            "    if alive and not found.contact:\n",
        ),
    ),
    mutant(
        "floor-of-the-map-is-ignored",
        "RP-8",
        "A copy of the map that ends before the accepted entry is taken.",
        (
            "jetstream/meta/map_recovery.py",
            "        if copy.last_index >= accepted_index:\n",
            "        if copy.last_index >= 0:\n",
        ),
    ),
    mutant(
        "two-beginnings-merge",
        "SF-26",
        "Brokers of a map that was begun anew count as in contact with those of the first one.",
        (
            "jetstream/recovery/map_lineages.py",
            "        return bool(own and peer.bootstrap_id) and own != peer.bootstrap_id\n",
            "        return False\n",
        ),
    ),
)
MAP_MUTANTS = tuple(replace(found, recovers="map") for found in _MUTANTS)
