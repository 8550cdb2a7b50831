"""Gives out a block's columns: from the cache, or made by the transcoder.

Files are in a folder of the data directory, which is emptied at a start. One block is made at a time; who waits
for the same one finds it in the cache then.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from supercluster.broker.bulk.blocks import Block, Bounds, Version, version_of
from supercluster.broker.bulk.cache import Cache, Kept, Made
from supercluster.broker.bulk.layout import UNFINISHED
from supercluster.broker.bulk.transcoder import FailedJobError, Transcoder
from supercluster.broker.jetstream.stream.sealed import SealedMessages

log = logging.getLogger(__name__)

FOLDER = "bulk"
TRIES = 3
"""A block that shows other messages once its columns are made is made anew so often at most."""
BEYOND_BYTES = 1 << 20
"""What columns may take more than the entries that they are made of: for lengths and padding."""


@dataclass(frozen=True, slots=True)
class Key:
    """A block of a stream of this broker."""

    account: str
    stream: str
    block: Block


def bounds_of(sealed: SealedMessages) -> Bounds:
    return Bounds(sealed.first_seq, sealed.applied_index, sealed.absent)


class Maker:
    """See the module."""

    def __init__(self, data_dir: Path, quota_bytes: int, transcoder: Transcoder) -> None:
        self._data_dir = data_dir
        self._folder = data_dir / FOLDER
        self.transcoder = transcoder
        self._turn = asyncio.Lock()
        self._files = 0
        self.cache = Cache(quota_bytes, self._remove)

    def start(self) -> None:
        """Raises OSError."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(mode=0o750, exist_ok=True)

    def path(self, kept: Kept) -> Path:
        return self._folder / kept.name

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):
            (self._folder / name).unlink()

    async def columns(self, key: Key, sealed: SealedMessages, names: Sequence[str]) -> tuple[Version, Made]:
        """The block as it is now.

        Raises:
            FailedJobError: no columns can be made of it.
            TranscoderDiedError: nobody knows.
        """
        for _ in range(TRIES):
            version = version_of(key.block, bounds_of(sealed))
            made = self.cache.find(key, version)
            if made is not None and made.columns.keys() >= set(names):
                return version, made
            async with self._turn:
                await self._make(key, sealed, names)
        raise FailedJobError("its messages go faster than its columns are made")

    async def _make(self, key: Key, sealed: SealedMessages, names: Sequence[str]) -> None:
        block, version = key.block, version_of(key.block, bounds_of(sealed))
        made = self.cache.find(key, version)
        missing = [name for name in names if made is None or name not in made.columns]
        if not missing:
            return
        if version.first > block.last:
            raise FailedJobError("its messages are gone")
        wanted = block.end - block.begin + BEYOND_BYTES
        room = self.cache.room(wanted)
        if room < wanted or not sealed.has_room(wanted):
            raise FailedJobError("there is no room")
        self._files += 1
        files = {name: f"{self._files:08d}.{name}" for name in missing}
        deleted, gaps = sealed.holes(version.first, block.last)
        job = {
            "path": str(self._data_dir / block.path),
            "begin": block.begin,
            "end": block.end,
            "first": version.first,
            "last": block.last,
            "rows": version.rows,
            "deleted": [base64.b64encode(piece).decode() for piece in deleted],
            "gaps": gaps,
            "columns": {name: str(self._folder / file) for name, file in files.items()},
            "bytes_max": room,
        }
        try:
            answer = await self.transcoder.run(job)
        except BaseException:
            for file in files.values():  # One that was ended has left what it had.
                self._remove(file)
                self._remove(file + UNFINISHED)
            raise
        ranges = [(first, last) for first, last in answer["deleted"]]
        columns = {
            name: Kept(files[name], told["size"], told["sum"]) for name, told in answer["columns"].items()
        }
        self.cache.put(key, Made(version, answer["rows"], ranges, columns))
