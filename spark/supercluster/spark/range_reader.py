"""The interface of the readers that read a task's range of sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class RangeReader(Protocol):
    """Reads one life of a stream, and builds the columns that it was made for."""

    def read(self, first: int, last: int) -> Iterator[pa.RecordBatch]:
        """The messages `first` … `last`, inclusive, that exist: in order, each of them once."""
