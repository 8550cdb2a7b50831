"""The subjects of what was stored since the last turn: consumers that wait for it are found by them."""

from __future__ import annotations

from supercluster.broker.jetstream.state.log_reader import MessageReader
from supercluster.broker.raft.entry import Entry

# Of more subjects in one turn nobody asks which consumers they are for: all that wait are served.
SUBJECTS_MAX = 4096


class StoredSubjects:
    """Of one stream's leader."""

    def __init__(self) -> None:
        self._subjects: set[bytes] = set()
        self._are_all_known = True
        self.any_stored = False
        """Were messages stored, perhaps such as nobody has a verdict for?"""

    def note(self, entry: Entry, reader: MessageReader) -> None:
        """An entry with messages was applied."""
        self.any_stored = True
        stored = reader.entry_of(entry.first_seq)
        if stored is not None and len(self._subjects) < SUBJECTS_MAX:
            self._subjects.update(stored.parts[::3])
        else:
            self._are_all_known = False

    def take(self) -> set[bytes] | None:
        """The turn has come. None: they may be any."""
        found = self._subjects if self._subjects and self._are_all_known else None
        self._subjects, self._are_all_known, self.any_stored = set(), True, False
        return found
