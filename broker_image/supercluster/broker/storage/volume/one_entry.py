"""One entry of a group's log, read from the files of a data directory that may be in use: nothing is opened
for writing.

`supercluster-broker entry` uses it to show the entry at which a group halted (SF-25).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import BinaryIO

from supercluster.broker.bounds import RECORD_BYTES_MAX
from supercluster.broker.raft.entry import (
    HEADER,
    HEADER_BYTES,
    CorruptRecordError,
    Entry,
    decode_entry,
)
from supercluster.broker.raft.errors import NewerFormatError
from supercluster.broker.storage.log.group_files import BASE, Base
from supercluster.broker.storage.segments.segment import (
    SEGMENT_HEAD_BYTES,
    SEGMENT_SUFFIX,
    decode_head,
    parse_stem,
)
from supercluster.broker.storage.volume.registry import REGISTRY, read_homes
from supercluster.broker.storage.volume.volume import GROUPS, directory_name


class EntryNotFoundError(Exception):
    """The files do not have it; the text says what they have."""


def read_entry(data_dir: Path, group: str, index: int) -> Entry:
    """The entry of that index in a group's log.

    Raises:
        EntryNotFoundError: there is no such group or entry, or its record is damaged.
        OSError: a file cannot be read.
    """
    folder = _folder(data_dir, group)
    base = _base(folder)
    if index <= base.index:
        raise EntryNotFoundError(f"the log of {group} begins behind entry {base.index}")
    stems = ((parse_stem(path.name), path) for path in folder.glob(f"*{SEGMENT_SUFFIX}"))
    firsts = sorted((stem[1], path) for stem, path in stems if stem is not None and stem[0] == base.epoch)
    held = [path for first, path in firsts if first <= index]
    if not held:
        raise EntryNotFoundError(f"{folder} has no segment with entry {index}")
    with held[-1].open("rb") as file:
        return _find(file, index)


def _folder(data_dir: Path, group: str) -> Path:
    journal = data_dir / REGISTRY
    homes = read_homes(journal.read_bytes()) if journal.exists() else {}
    folder = data_dir / GROUPS / directory_name(homes.get(group, group))
    if not folder.is_dir():
        raise EntryNotFoundError(f"{data_dir} has no files of a group {json.dumps(group)}")
    return folder


def _base(folder: Path) -> Base:
    path = folder / BASE
    if not path.exists():
        return Base()
    base = Base.decode(path.read_bytes())
    if base is None:
        raise EntryNotFoundError(f"{path} is damaged: where the log begins is not known")
    return base


def _find(file: BinaryIO, index: int) -> Entry:
    try:
        head = decode_head(file.read(SEGMENT_HEAD_BYTES), file.name)
    except NewerFormatError as error:
        raise EntryNotFoundError(str(error)) from error
    if head is None:
        raise EntryNotFoundError(f"{file.name}: the header is damaged")
    offset, last = SEGMENT_HEAD_BYTES, head.base_index
    while len(header := file.read(HEADER_BYTES)) == HEADER_BYTES:
        size, _, found, *_ = HEADER.unpack(header)
        if not HEADER_BYTES <= size <= RECORD_BYTES_MAX:
            raise EntryNotFoundError(f"{file.name}: the record at offset {offset} is damaged")
        if found == index:
            try:
                return decode_entry(header + file.read(size - HEADER_BYTES))
            except CorruptRecordError as error:
                raise EntryNotFoundError(f"{file.name}, offset {offset}: {error}") from error
        last, offset = found, offset + size
        file.seek(offset)
    raise EntryNotFoundError(f"{file.name} ends with entry {last}")
