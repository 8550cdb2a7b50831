"""Mutants of the store, and of what it says about itself after a restart."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

STORAGE_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "session-counter-repeats",
        "SF-10",
        "A restarted process has the counter of the one before it, and so the same sessions.",
        ("storage/volume/volume.py", "process_count=count,", "process_count=found.process_count,"),
    ),
    mutant(
        "records-not-checked",
        "SF-17",
        "Recovery takes a record whose checksum is wrong: a torn tail is served.",
        ("storage/segments/scan.py", "if crc32(view[position + 8 : end]) != crc:", "if crc < 0:"),
    ),
    mutant(
        "checkpoint-beyond-log",
        "SF-17",
        "A checkpoint of entries that the recovered log does not have is taken.",
        (
            "storage/recovery/recovery.py",
            "for index in [index for index in checkpoints.indexes if index > last_index]:",
            "for index in [index for index in checkpoints.indexes if index < 0]:",
        ),
        (
            "storage/log/log.py",
            "if found is not None and self.term(index) == found[0]:",
            "if found is not None:",
        ),
    ),
    mutant(
        "checkpoint-not-synced",
        "SF-17",
        "A checkpoint counts, and the log's head is dropped by it, before its file is durable.",
        ("storage/log/checkpoint.py", "        file.fdatasync()\n", ""),
    ),
    mutant(
        "checkpoint-of-several-entries",
        "SF-17",
        "A checkpoint has consumers as they were when it came to each of them, some entries later.",
        ("jetstream/state/consumer_states.py", "            self._before[name] = state.copy()\n", ""),
    ),
    mutant(
        "vote-not-synced",
        "SF-4",
        "A vote is written and not fsynced before it is answered.",
        (
            "storage/log/sync_tickets.py",
            "            self._handle.sync()\n",
            "            pass\n",
        ),
    ),
    mutant(
        "membership-not-synced",
        "SF-4",
        "A membership is confirmed before it is durable, where the stream's policy calls what is written durable.",
        (
            "storage/log/entry_log.py",
            "            return max(self._synced_index, self._unforgotten[0] - 1)\n",
            "            return self.last_index\n",
        ),
    ),
    mutant(
        "empty-volume-keeps-identity",
        "SF-4",
        "A directory that was lost gets the identity that it had, and votes with it.",
        (
            "storage/volume/volume.py",
            "Identity(incarnation, boot_id, count, clean=False, owner=owner, marks_from=count)",
            'Identity("0" * 12, boot_id, 1, clean=False, owner=owner)',
        ),
    ),
    mutant(
        "page-cache-is-believed",
        "RP-6",
        "What is read back after a failed fsync counts as written: the next fsync has nothing to carry, and succeeds.",
        (
            "storage/recovery/recovery.py",
            "                found.segments.write_again(segment, synced_index + 1)\n",
            "                pass\n",
        ),
    ),
    mutant(
        "no-reserve",
        "SF-18",
        "Messages may fill the disk to its last byte: the purge that would free it finds no room.",
        (
            "storage/disk/space.py",
            "return size_bytes <= self._room(self._reserve_bytes)",
            "return size_bytes <= self._room(0)",
        ),
    ),
    mutant(
        "read-errors-are-damage",
        "SF-32",
        "A copy whose disk does not give a record back is marked as lost.",
        (
            "storage/log/entry_log.py",
            "            self.failed = error\n            raise\n\n    @contextmanager\n",
            "            raise self._damaged(DamagedError(error.path, error.message)) from error\n\n    @contextmanager\n",
        ),
    ),
    mutant(
        "an-unreadable-map-is-lost",
        "SF-32",
        "A broker that starts while its disk does not give the map's log back puts it away at the next try.",
        ("jetstream/node/bootstrap.py", "UNREADABLE_MS_MAX = 60_000", "UNREADABLE_MS_MAX = 1"),
    ),
    mutant(
        "lost-copy-keeps-identity",
        "SF-4",
        "A copy with a damaged record votes as the member that it was.",
        (
            "storage/volume/store.py",
            "            lost=report.verdict is Verdict.LOST_RECORD,\n",
            "            lost=False,\n",
        ),
    ),
)
