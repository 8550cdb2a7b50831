"""Mutants of the exchange of copies that are of no use: whose word counts, and for how long it has to have been so (MR-2)."""

from __future__ import annotations

from dataclasses import replace

from tests.simulator.mutation import Mutant, mutant

_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "young-trouble-is-exchanged",
        "MR-2",
        "A copy is exchanged as soon as the map has a note of it, whatever interval was asked for.",
        (
            "jetstream/meta_leader/moves.py",
            "(gone_ms := (now_ns - since_ns) // 1_000_000) < away_ms:",
            "(gone_ms := (now_ns - since_ns) // 1_000_000) < 0:",
        ),
    ),
    mutant(
        "usable-copies-are-exchanged",
        "MR-6",
        "A copy is exchanged because somebody asks for it, though its broker is there and its copy is usable.",
        (
            "jetstream/meta_leader/moves.py",
            "        if away_ms and since_ns is None:\n",
            "        if away_ms < 0 and since_ns is None:\n",
        ),
    ),
    mutant(
        "usable-again-stays-noted",
        "MR-6",
        "What the map has of a copy stays there when its broker tells the rest without it, or nothing any more.",
        (
            "jetstream/meta_leader/copy_reports.py",
            "(group for group in noted if group not in mine or is_silent or (is_told and group not in first)),",
            "(group for group in noted if group not in mine),",
        ),
    ),
    mutant(
        "unusable-copies-are-not-told",
        "MR-2",
        "Nobody tells the leader of the map of copies that are of no use.",
        (
            "jetstream/node/failed_copies.py",
            "        if due_ms is None or now_ms < due_ms:\n",
            "        if due_ms is None or now_ms >= 0:\n",
        ),
    ),
)
COPY_MUTANTS = tuple(replace(found, recovers="copies") for found in _MUTANTS)
