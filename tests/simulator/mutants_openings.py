"""Mutants of what a volume and a log take for true when they are opened: mends of D1 to D15, A6, A8 and A9."""

from __future__ import annotations

from tests.simulator.mutation import Mutant, mutant

OPENING_MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "good-records-are-moved",
        "SF-31",
        "A damaged segment is emptied before its good records are written back.",
        (
            "storage/recovery/recovery.py",
            "                file.truncate(damage.offset)\n                file.fdatasync()\n",
            (
                "                good = file.pread(0, damage.offset)\n"
                "                file.truncate(0)\n"
                "                file.write(0, (good,))\n"
                "                file.fdatasync()\n"
            ),
        ),
    ),
    mutant(
        "unreadable-identity-is-none",
        "SF-32",
        "A volume whose identity cannot be read for a moment becomes another one.",
        (
            "storage/volume/volume.py",
            "        found = Identity.decode(disk.read_file(VOLUME)) if disk.exists(VOLUME) else None\n",
            (
                "        try:\n"
                "            found = Identity.decode(disk.read_file(VOLUME)) if disk.exists(VOLUME) else None\n"
                "        except DiskError:\n"
                "            found = None\n"
            ),
        ),
    ),
    mutant(
        "newer-files-are-damaged",
        "SF-31",
        "A segment of a newer version counts as damaged, and goes to quarantine.",
        (
            "storage/segments/segment.py",
            "        raise NewerFormatError(path, version, _VERSION)\n",
            "        return None\n",
        ),
    ),
    mutant(
        "a-base-that-is-gone-was-none",
        "SF-4",
        "A log whose base is gone counts as one that begins with its first entry.",
        (
            "storage/recovery/recovery.py",
            "        elif notes.epoch or any(epoch for epoch, _ in stems):\n",
            "        elif False:\n",
        ),
    ),
    mutant(
        "what-reads-well-is-durable",
        "RP-6",
        "Behind a power failure everything that can be read counts as fsynced.",
        (
            "storage/recovery/recovery.py",
            "        synced_index = min(max(notes.durable_index, head), last_index)\n",
            (
                "        synced_index = min(max(notes.durable_index, head), last_index)\n"
                "        synced_index = last_index if self.stop is Stop.POWER else synced_index\n"
            ),
        ),
    ),
    mutant(
        "the-head-counts-as-durable",
        "RP-6",
        "The entries before the base, in the segment in which the log begins, count as fsynced.",
        (
            "storage/recovery/recovery.py",
            "        synced_index = min(max(notes.durable_index, head), last_index)\n",
            "        synced_index = min(max(notes.durable_index, base.index), last_index)\n",
        ),
    ),
    mutant(
        "a-damaged-registry-stops-the-start",
        "SF-4",
        "A broker does not start while a line of its registry is damaged.",
        ("storage/volume/volume.py", "        if not is_whole(disk):\n", "        if False:\n"),
    ),
    mutant(
        "a-vote-in-memory-is-believed",
        "SF-4",
        "A vote that a killed process wrote counts as durable, and the next one goes over the last durable vote.",
        (
            "storage/log/slot_file.py",
            "        if durable and slots != [(number, value)] * 2:\n",
            "        if False:\n",
        ),
    ),
    mutant(
        "votes-share-a-sector",
        "SF-4",
        "Both slots of term and vote stand in what a disk writes at once.",
        ("storage/log/slot_file.py", "_SECTOR_BYTES = 4096\n", "_SECTOR_BYTES = SLOT_BYTES\n"),
    ),
    mutant(
        "rot-in-the-last-line-is-torn",
        "SF-4",
        "The last line of the registry is dropped if it is damaged, whether it was cut short or not.",
        (
            "storage/volume/registry.py",
            "        return lines[:-1] if lines and _lacks_sectors(lines[-1]) else lines\n",
            "        return lines[:-1] if lines and _parse(lines[-1]) is None else lines\n",
        ),
    ),
    mutant(
        "newer-files-behind-damage-are-moved",
        "SF-31",
        "A segment of a newer version behind a damaged one goes to quarantine. (Two places look at its head.)",
        (
            "storage/recovery/found_segments.py",
            "        decode_head(read_twice(file, 0, SEGMENT_HEAD_BYTES), path)\n        return file.size()\n",
            "        return file.size()\n",
        ),
        (
            "storage/recovery/found_segments.py",
            "        head = decode_head(read_twice(file, 0, SEGMENT_HEAD_BYTES), path)\n        if head is None:\n            return None\n",
            (
                "        try:\n"
                "            head = decode_head(read_twice(file, 0, SEGMENT_HEAD_BYTES), path)\n"
                "        except DiskError:\n"
                "            return None\n"
                "        if head is None:\n"
                "            return None\n"
            ),
        ),
    ),
    mutant(
        "unreadable-entries-are-not-waited-for",
        "SF-32",
        "An opening that cannot read what it is to write again fails like one that cannot write.",
        (
            "storage/segments/segments.py",
            "            data = read_twice(file, offset, min(_READ_BYTES_MAX, segment.size_bytes - offset))\n            if not data:\n                raise DiskError(\n",
            "            data = file.pread(offset, min(_READ_BYTES_MAX, segment.size_bytes - offset))\n            if not data:\n                raise DiskError(\n",
        ),
    ),
    mutant(
        "a-failed-opening-keeps-its-files",
        "SF-32",
        "What an opening had open stays open when it fails: with each try there are fewer descriptors.",
        (
            "storage/recovery/recovery.py",
            "        found = opening.run(on_failure)\n        on_failure.pop_all()\n",
            "        found = opening.run(ExitStack())\n",
        ),
    ),
    mutant(
        "a-newer-checkpoint-does-not-help",
        "SF-32",
        "A copy whose state at the log's beginning is damaged is lost, though a newer checkpoint is whole.",
        (
            "storage/recovery/recovery.py",
            "        usable = [index for index in checkpoints.indexes if base.index < index <= last_index]\n",
            "        usable: list[int] = []\n",
        ),
    ),
    mutant(
        "segments-beyond-32-bits",
        "SF-25",
        "A segment may be larger than the offsets of its index.",
        (
            "settings/settings.py",
            "    segment_bytes: int = _bounded(64 << 20, 64 << 10, 1 << 31)\n",
            "    segment_bytes: int = _bounded(64 << 20, 64 << 10, 1 << 33)\n",
        ),
    ),
    mutant(
        "a-damaged-note-is-believed",
        "SF-9",
        "The note of the copies that are kept is read whatever its checksum says.",
        (
            "storage/volume/store.py",
            '        return note if crc == b"%08x" % crc32(note) else None\n',
            "        return note\n",
        ),
    ),
    mutant(
        "a-close-that-fails-ends-the-process",
        "SF-25",
        "A descriptor that cannot be closed is no error of a disk, so it is no fault of its group alone.",
        (
            "storage/disk/os_disk.py",
            '            with _named(self._path, "close"):\n                os.close(fd)\n',
            "            os.close(fd)\n",
        ),
    ),
    mutant(
        "removed-file-by-file",
        "SF-31",
        "A copy is removed where it is, so that a crash leaves some of its files.",
        (
            "storage/disk/removal.py",
            '    disk.rename(path, target)\n    disk.fsync_dir(path.rpartition("/")[0])\n    disk.rmtree(target)\n',
            '    disk.rmtree(path)\n    disk.fsync_dir(path.rpartition("/")[0])\n',
        ),
    ),
)
