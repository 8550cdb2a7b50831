"""Mutants of the store, and of what it says about itself after a restart."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

STORAGE_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "session-counter-repeats",
        "SF-10",
        "A restarted process has the counter of the one before it, and so the same sessions.",
        ("storage/volume.py", "process_count=found.process_count + 1", "process_count=found.process_count"),
    ),
    mutant(
        "records-not-checked",
        "SF-17",
        "Recovery takes a record whose checksum is wrong: a torn tail is served.",
        ("storage/scan.py", "if crc32(view[position + 8 : end]) != crc:", "if crc < 0:"),
    ),
    mutant(
        "checkpoint-beyond-log",
        "SF-17",
        "A checkpoint of entries that the recovered log does not have is taken.",
        (
            "storage/recovery.py",
            "for index in [index for index in checkpoints.indexes if index > last_index]:",
            "for index in [index for index in checkpoints.indexes if index < 0]:",
        ),
        (
            "storage/log.py",
            "if found is not None and self.term(index) == found[0]:",
            "if found is not None:",
        ),
    ),
)
