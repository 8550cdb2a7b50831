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
            "Identity(incarnation, boot_id, count, owner, power_failures=count)",
            'Identity("0" * 12, boot_id, 1, owner)',
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
        "confirmed-by-the-policy-alone",
        "SF-4",
        "A log confirms what is in memory only, as its policy wants it, while the disk says that it owes nothing.",
        ("storage/log/entry_log.py", "self._hard.owes and (out is None or out.hard.owes)", "True"),
    ),
    mutant(
        "confirmed-before-the-disk-knows",
        "SF-4",
        "What is in memory only is confirmed while the fsync that says so on the disk is under way.",
        (
            "storage/log/entry_log.py",
            "self._hard.owes and (out is None or out.hard.owes)",
            "(out.hard if out is not None else self._hard).owes",
        ),
    ),
    mutant(
        "confirmed-while-nothing-is-to-be-owed",
        "SF-4",
        "What is in memory only is confirmed while it is written that nothing is owed.",
        (
            "storage/log/entry_log.py",
            "self._hard.owes and (out is None or out.hard.owes)",
            "self._hard.owes",
        ),
    ),
    mutant(
        "nothing-owed-before-all-is-durable",
        "SF-4",
        "That nothing is owed is written before the fsync of the entries.",
        (
            "storage/log/entry_log.py",
            "return not self.all_synced or self._directory_dirty or self.fsync is Fsync.NEVER",
            "return self.fsync is Fsync.NEVER",
        ),
    ),
    mutant(
        "owing-believed-from-the-page-cache",
        "SF-4",
        "A killed process wrote that the log owes something, and did not fsync it; the next one confirms by that.",
        (
            "storage/recovery/recovery.py",
            "SlotFile.load(self.disk, path, durable=True)",
            "SlotFile.load(self.disk, path, durable=False)",
        ),
    ),
    mutant(
        "overtaken-write-counts",
        "SF-4",
        "What is owed counts by its own fsync, though a vote was written over it.",
        (
            "storage/log/entry_log.py",
            "        if ticket is self._hard_out:  # Else",
            "        if True:  # Else",
        ),
    ),
    mutant(
        "vote-takes-a-clear-back",
        "SF-4",
        "A vote says that entries are going to be owed over a write that says that none are, which the disk may have.",
        (
            "storage/log/entry_log.py",
            "        if self._hard_out is not None:\n            return self._hard_out.hard.owes\n",
            "",
        ),
    ),
    mutant(
        "vote-deaf-to-what-it-took-along",
        "SF-4",
        "A vote counts though the fsync failed that was under way when it was written, and to which alone the kernel said so.",
        (
            "storage/log/sync_tickets.py",
            "            if before is not None:\n",
            "            if before is None and self.error is not None:\n",
        ),
    ),
    mutant(
        "nothing-owed-behind-a-failed-fsync",
        "SF-4",
        "An fsync of entries that failed counts as one that went well, and then nothing is owed.",
        (
            "storage/log/entry_log.py",
            "            self.failed = ticket.error\n            raise ticket.error\n        if ticket.generation",
            "            pass\n        if ticket.generation",
        ),
    ),
    mutant(
        "stronger-policy-forgets-what-it-owes",
        "SF-4",
        "A log whose policy became `always` owes nothing at once.",
        (
            "storage/log/entry_log.py",
            "        self._pace.fsync = policy\n",
            "        self._pace.fsync = policy\n        self._hard.owes and self._save_hard(owes=policy is not Fsync.ALWAYS)\n",
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
