"""The files of columns: which there are, how much room they take, and which go first.

A file takes room until it is removed and nobody reads it any more. The caller removes files and closes them;
nothing here reaches a disk.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Kept:
    """One file."""

    name: str
    size_bytes: int
    total: int
    """The sum of its words."""
    readers: int = 0
    is_removed: bool = False


@dataclass(slots=True)
class Made:
    """The columns of one version of a block."""

    version: Hashable
    rows: int
    deleted: list[tuple[int, int]]
    """Ranges inside that have no message."""
    columns: dict[str, Kept] = field(default_factory=dict)


class Cache:
    """Columns by block, the one that was read last at the end."""

    def __init__(self, quota_bytes: int, remove: Callable[[str], None]) -> None:
        self.quota_bytes = quota_bytes
        self._remove = remove
        self._made: OrderedDict[Hashable, Made] = OrderedDict()
        self.used_bytes = 0
        """Of all files that are there, those included that only readers still have."""

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Hashable]:
        return iter(list(self._made))

    def find(self, block: Hashable, version: Hashable) -> Made | None:
        """The block's columns. Those of another version are of no use any more."""
        found = self._made.get(block)
        if found is None:
            return None
        if found.version != version:
            self.drop(block)
            return None
        self._made.move_to_end(block)
        return found

    def version_of(self, block: Hashable) -> Hashable:
        """None: it has no columns."""
        found = self._made.get(block)
        return found.version if found is not None else None

    def put(self, block: Hashable, made: Made) -> Made:
        """Columns were made: beside those of the same version, or in place of those of another one."""
        present = self.find(block, made.version)
        if present is None:
            present = self._made[block] = Made(made.version, made.rows, made.deleted)
        for name, kept in made.columns.items():
            self._forget(present.columns.pop(name, None))
            present.columns[name] = kept
            self.used_bytes += kept.size_bytes
        return present

    def room(self, wanted_bytes: int) -> int:
        """How many bytes are free, once those were removed that were read least of late, as far as that many are wanted."""
        for block in list(self._made):
            if self.quota_bytes - self.used_bytes >= wanted_bytes:
                break
            if not any(kept.readers for kept in self._made[block].columns.values()):
                self.drop(block)
        return self.quota_bytes - self.used_bytes

    def drop(self, block: Hashable) -> None:
        """The block's columns go. Who reads them has them still, and they take their room until then."""
        made = self._made.pop(block, None)
        for kept in made.columns.values() if made is not None else ():
            self._forget(kept)

    def _forget(self, kept: Kept | None) -> None:
        if kept is None:
            return
        self._remove(kept.name)
        kept.is_removed = True
        if not kept.readers:
            self.used_bytes -= kept.size_bytes

    def opened(self, kept: Kept) -> None:
        """Somebody reads the file."""
        kept.readers += 1

    def closed(self, kept: Kept) -> None:
        kept.readers -= 1
        if kept.is_removed and not kept.readers:
            self.used_bytes -= kept.size_bytes
