"""A state machine's state as of one entry, which is encoded in slices while later entries are applied."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Piece:
    """What one slice gives."""

    data: bytes = field(repr=False)
    units: int
    """See `turn/slices.py`."""


class StateView(ABC):
    """Made in the turn that applied the entry."""

    @abstractmethod
    def pieces(self) -> Iterator[Piece]:
        """The state's snapshot, piece by piece, once."""

    @abstractmethod
    def close(self) -> None:
        """Nobody reads on: the state need not note any more what changes."""


class WholeState(StateView):
    """A state that is small, encoded when the view is made."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pieces(self) -> Iterator[Piece]:
        yield Piece(self._data, len(self._data) // 100)

    def close(self) -> None:
        """Nothing is held."""


def pieces_of(view: StateView) -> Generator[int, None, list[bytes]]:
    """A job that returns the pieces of a snapshot."""
    pieces = []
    for piece in view.pieces():
        pieces.append(piece.data)
        yield piece.units
    return pieces
