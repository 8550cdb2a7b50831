"""Mutants of mirrors and sources: where the position is, and when an answer counts."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

ORIGIN_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "positions-not-in-snapshots",
        "SF-17",
        "A checkpoint does not say up to where an origin's messages were taken.",
        (
            "jetstream/state/snapshot.py",
            "encode_positions(state.origins) if state.origins else",
            "encode_positions(state.origins) if False else",
        ),
    ),
    mutant(
        "position-beyond-its-messages",
        "SF-1",
        "A position is written down a little further than the messages that came with it.",
        (
            "jetstream/sources/puller.py",
            "        position = OriginPosition(self.origin, up_to, self.last_seq)\n",
            "        position = OriginPosition(self.origin, up_to + (up_to % 50 == 0), self.last_seq)\n",
        ),
    ),
)
