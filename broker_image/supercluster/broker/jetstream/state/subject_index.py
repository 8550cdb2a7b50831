"""Per subject: the count of messages, the first and the last sequence. It is rebuilt from snapshots and
replays, never stored twice.

Adding is the hot path of every replica: one dictionary operation a message. The first sequence is kept
lazily: after a removal it is a lower bound ("not before"), which is exact again when one message is left. A
caller that needs it exactly scans on from there. Under a small max_msgs_per_subject, where every message
costs a removal, the sequences of each subject are kept, so no scan is needed.

A view shows the index as of one moment while it changes: a subject is copied into it before it is changed. A
checkpoint reads one in slices.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from operator import itemgetter

from supercluster.broker.jetstream.encoding.codec import Reader, WireError, u32
from supercluster.broker.jetstream.subjects.filters import compile_filters, literals
from supercluster.broker.jetstream.turn.slices import SLICE_UNITS, Job, emptying

# Up to this limit per subject the sequences themselves are kept: at most so many a subject.
_KEEP_SEQS_UP_TO = 256
# Subjects in one part of a snapshot: some milliseconds' work.
PART_ROWS = 4096

# Subjects that are looked at in one go, where others wait.
SLICE_SUBJECTS = 4096


class SubjectIndex:
    """Counts and bounds of a stream's subjects. Sequences are added in rising order."""

    __slots__ = ("_limit", "_over", "_rows", "_seqs", "_stale_last", "_views")

    def __init__(self) -> None:
        # subject → [count, first sequence or a lower bound of it, last sequence]
        self._rows: dict[bytes, list[int]] = {}
        self._limit = 0
        self._over: set[bytes] = set()
        # subject → the sequences added since they are kept; all of the subject's when there are `count` of them.
        self._seqs: dict[bytes, list[int]] | None = None
        # Subjects whose last message was removed while older ones stayed: their last sequence is an upper bound.
        self._stale_last: set[bytes] = set()
        self._views: list[SubjectsView] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, subject: bytes) -> bool:
        return subject in self._rows

    # ---- changing -------------------------------------------------------------------------------------------------

    def add(self, subject: bytes, seq: int) -> None:
        """A message of `subject` was stored at `seq`."""
        row = self._rows.get(subject)
        is_plain = self._seqs is None and not self._stale_last and not self._views
        if row is None or not is_plain or 0 < self._limit <= row[0]:
            self.add_many((subject,), seq)
            return
        row[0] += 1
        row[2] = seq

    def add_many(self, subjects: Sequence[bytes], first_seq: int) -> None:
        """Messages were stored at `first_seq`, `first_seq + 1` and so on."""
        if self._views:
            self._note(subjects)
        if self._seqs is not None:
            self._keep_seqs(self._seqs, subjects, first_seq)
        if len(subjects) > 8:
            lasts = dict(zip(subjects, range(first_seq, first_seq + len(subjects)), strict=True))
            if len(lasts) * 4 <= len(subjects):
                self._add_few(subjects, first_seq, lasts)
                return
        rows, limit, stale = self._rows, self._limit, self._stale_last
        for seq, subject in enumerate(subjects, first_seq):
            row = rows.get(subject)
            if row is None:
                rows[subject] = [1, seq, seq]
                continue
            row[0] += 1
            row[2] = seq
            if stale:
                stale.discard(subject)
            if limit and row[0] > limit:
                self._over.add(subject)

    def _add_few(self, subjects: Sequence[bytes], first_seq: int, lasts: dict[bytes, int]) -> None:
        """Few subjects: they are counted, and their last sequences found, in C; each is touched once."""
        rows, limit = self._rows, self._limit
        for subject, count in Counter(subjects).items():
            row = rows.get(subject)
            if row is None:
                row = rows[subject] = [count, first_seq + subjects.index(subject), lasts[subject]]
            else:
                row[0] += count
                row[2] = lasts[subject]
                self._stale_last.discard(subject)
            if limit and row[0] > limit:
                self._over.add(subject)

    @staticmethod
    def _keep_seqs(kept: dict[bytes, list[int]], subjects: Sequence[bytes], first_seq: int) -> None:
        for seq, subject in enumerate(subjects, first_seq):
            found = kept.get(subject)
            if found is None:
                kept[subject] = [seq]
            else:
                found.append(seq)

    def remove(self, subject: bytes, seq: int) -> None:
        """The message of `subject` at `seq` was removed.

        Raises:
            KeyError: the index has no such subject.
        """
        if self._views:
            self._note((subject,))
        row = self._rows[subject]
        if row[0] <= 1:
            del self._rows[subject]
            self._over.discard(subject)
            self._stale_last.discard(subject)
            if self._seqs is not None:
                self._seqs.pop(subject, None)
            return
        row[0] -= 1
        if self._seqs is not None and self._removed_kept(self._seqs, subject, seq, row):
            return
        if seq == row[2]:
            self._stale_last.add(subject)
        if seq <= row[1]:
            row[1] = seq + 1
        if row[0] == 1 and subject not in self._stale_last:
            row[1] = row[2]

    def _removed_kept(self, kept: dict[bytes, list[int]], subject: bytes, seq: int, row: list[int]) -> bool:
        """Take a sequence out of those kept; True when they are all of the subject's, and the bounds exact by them."""
        seqs = kept.get(subject)
        if not seqs:
            return False
        at = bisect_left(seqs, seq)
        if at < len(seqs) and seqs[at] == seq:
            del seqs[at]
        if len(seqs) != row[0]:
            return False
        row[1], row[2] = seqs[0], seqs[-1]
        self._stale_last.discard(subject)
        return True

    def fix_last(self, subject: bytes, seq: int) -> None:
        """Say the exact last sequence of a subject, after its last message was removed and older ones stayed."""
        if self._views:
            self._note((subject,))
        row = self._rows[subject]
        row[2] = seq
        self._stale_last.discard(subject)
        if row[0] == 1:
            row[1] = seq

    def fix_first(self, subject: bytes, seq: int) -> None:
        """Say the exact first sequence of a subject, so that nobody scans for it again."""
        if self._views:
            self._note((subject,))
        self._rows[subject][1] = seq

    def counts(self) -> tuple[list[bytes], list[int]]:
        """All subjects, and how many messages each has, as they are now."""
        return list(self._rows), list(map(itemgetter(0), self._rows.values()))

    # ---- one subject ----------------------------------------------------------------------------------------------

    def count(self, subject: bytes) -> int:
        row = self._rows.get(subject)
        return row[0] if row is not None else 0

    def first_seq_hint(self, subject: bytes) -> int:
        """A sequence not behind the subject's first message; 0 when it has none."""
        row = self._rows.get(subject)
        return row[1] if row is not None else 0

    def last_seq(self, subject: bytes) -> int:
        """The subject's last sequence (see `last_is_exact`); 0 when it has no message."""
        row = self._rows.get(subject)
        return row[2] if row is not None else 0

    def last_is_exact(self, subject: bytes) -> bool:
        """False after the subject's last message was removed and older ones stayed: `last_seq` is an upper bound
        then, until a message is added or `fix_last` is called."""
        return subject not in self._stale_last

    def over(self, limit: int) -> list[bytes]:
        """Subjects with more than `limit` messages, for max_msgs_per_subject. Asked with the same limit again it
        looks only at subjects that grew since, so that a stream may ask after every batch."""
        if limit <= 0:
            return []
        if limit != self._limit:
            self._watch(limit)
            if not 1 < limit <= _KEEP_SEQS_UP_TO:
                self._seqs = None
            elif self._seqs is None:
                self._seqs = {}
            return sorted(self._over)
        found = sorted(s for s in self._over if self.count(s) > limit)
        self._over = set(found)
        return found

    def _watch(self, limit: int) -> None:
        self._limit = limit
        # Most often there are none, which is found in C.
        if max(map(itemgetter(0), self._rows.values()), default=0) <= limit:
            self._over = set()
        else:
            self._over = {subject for subject, row in self._rows.items() if row[0] > limit}

    # ---- filters --------------------------------------------------------------------------------------------------

    def _matching(self, filters: Sequence[str]) -> Iterator[tuple[bytes, list[int]]]:
        rows = self._rows
        plain = literals(filters) if filters else None
        if plain is not None:
            for subject in dict.fromkeys(plain):
                row = rows.get(subject)
                if row is not None:
                    yield subject, row
            return
        wanted = compile_filters(filters)
        if wanted is None:
            yield from rows.items()
            return
        for subject, row in rows.items():
            if wanted(subject):
                yield subject, row

    def slices(self, filters: Sequence[str]) -> Iterator[list[tuple[bytes, int, int, int]]]:
        """Every subject that matches, with its count, a sequence not behind its first message, and its last; as they are when
        their slice is taken. The index may change between two slices: what is new since the first is not looked at."""
        plain = literals(filters) if filters else None
        names = list(self._rows) if plain is None else list(dict.fromkeys(plain))
        wanted = compile_filters(filters) if plain is None else None
        get = self._rows.get
        for at in range(0, len(names), SLICE_SUBJECTS):
            some = names[at : at + SLICE_SUBJECTS]
            chosen = some if wanted is None else list(filter(wanted, some))
            rows = zip(chosen, map(get, chosen), strict=True)
            yield [(subject, row[0], row[1], row[2]) for subject, row in rows if row is not None]

    def subjects(self, pattern: str = ">") -> dict[str, int]:
        """Subjects that match, with their counts, as STREAM.INFO shows them."""
        return {
            subject.decode("utf-8", "replace"): row[0] for subject, row in sorted(self._matching((pattern,)))
        }

    def total(self, *filters: str) -> int:
        """How many messages have a subject that matches one of the filters (all, without any)."""
        return sum(row[0] for _, row in self._matching(filters))

    def last_for_filters(self, *filters: str) -> int:
        """The last sequence whose subject matches; 0 when none does."""
        return max((row[2] for _, row in self._matching(filters)), default=0)

    def next_matching(self, filters: Sequence[str], from_seq: int) -> int | None:
        """A sequence, at least `from_seq`, before which no message matches; None when none matches at all from
        there. It is the message itself where the index knows it exactly, else the place to scan from."""
        best: int | None = None
        for _, row in self._matching(filters):
            if row[2] < from_seq:
                continue
            at = max(row[1], from_seq)
            if best is None or at < best:
                best = at
                if at == from_seq:
                    break
        return best

    def pending_bounds(self, filters: Sequence[str], after_seq: int) -> tuple[int, bool]:
        """How many messages behind `after_seq` match, and whether that is exact. Subjects that lie on both sides of
        it are counted whole, and make it inexact."""
        total, exact = 0, True
        for _, row in self._matching(filters):
            if row[2] <= after_seq:
                continue
            total += row[0]
            if row[1] <= after_seq:
                exact = False
        return total, exact

    # ---- snapshots ------------------------------------------------------------------------------------------------

    def view(self) -> SubjectsView:
        """The index as it is now, until the view is closed."""
        view = SubjectsView(self, self._rows, self._stale_last, self._seqs, self._limit)
        self._views.append(view)
        return view

    def _note(self, subjects: Sequence[bytes]) -> None:
        """These are about to change."""
        for view in self._views:
            view.note(subjects)

    def discarding(self) -> Job:
        """A job that frees the index, when the last view of it is closed."""
        while self._views:
            yield SLICE_UNITS
        yield from emptying(self._rows)
        yield from emptying(self._seqs or {})

    def leave(self, view: SubjectsView) -> None:
        """Nobody reads the view any more."""
        if view in self._views:
            self._views.remove(view)

    def take(self, reader: Reader) -> None:
        """Add the subjects of one part that a view has given, behind those of the parts before it.

        Raises:
            WireError: it is no such part, or has a subject that another part had.
        """
        limit, count = reader.u32(), reader.u32()
        lengths, columns = reader.column("H", count), [reader.column("Q", count) for _ in range(3)]
        stale = reader.column("I", reader.u32())
        kept = reader.column("I", count if limit else 0)
        seqs = reader.column("Q", sum(kept))
        joined = bytes(reader.rest())
        if len(joined) != sum(lengths) or any(offset >= count for offset in stale):
            raise WireError(f"{count} subjects do not have the {len(joined)} bytes that they say")
        subjects = [joined[first:end] for first, end in pairwise(accumulate(lengths, initial=0))]
        before = len(self._rows)
        self._rows.update(zip(subjects, map(list, zip(*columns, strict=True)), strict=True))
        if len(self._rows) != before + count:
            raise WireError("a subject is there twice")
        self._stale_last.update(subjects[offset] for offset in stale)
        if limit:
            self._limit = limit
            found = self._seqs = {} if self._seqs is None else self._seqs
            ends = pairwise(accumulate(kept, initial=0))
            found.update(
                (subject, list(seqs[first:end]))
                for subject, (first, end) in zip(subjects, ends, strict=True)
                if end > first
            )
            self._over.update(
                subject for subject, row in zip(subjects, columns[0], strict=True) if row > limit
            )


class SubjectsView:
    """See `SubjectIndex.view`."""

    __slots__ = ("_before", "_index", "_limit", "_names", "_rows", "_seqs", "_stale_last")

    def __init__(
        self,
        index: SubjectIndex,
        rows: dict[bytes, list[int]],
        stale_last: set[bytes],
        seqs: dict[bytes, list[int]] | None,
        limit: int,
    ) -> None:
        self._index = index
        self._rows = rows
        self._stale_last = stale_last
        self._seqs = seqs
        self._limit = limit if seqs is not None else 0
        self._names = list(rows)
        self._before: dict[bytes, tuple[list[int], bool, list[int]]] = {}
        """What has changed since, as it was. Subjects that were not there are nobody's question."""

    def note(self, subjects: Sequence[bytes]) -> None:
        """These are about to change."""
        before, rows = self._before, self._rows
        for subject in subjects:
            if subject not in before:
                before[subject] = self._image(subject, list(rows.get(subject, ())))

    def _image(self, subject: bytes, row: list[int]) -> tuple[list[int], bool, list[int]]:
        seqs = list(self._seqs.get(subject, ())) if self._seqs is not None else []
        return row, subject in self._stale_last, seqs

    def parts(self) -> Iterator[bytes]:
        """For `SubjectIndex.take`, in the order in which the subjects came: equal for equal indexes that were made by the same
        changes. At least one."""
        for at in range(0, max(len(self._names), 1), PART_ROWS):
            yield self._part(self._names[at : at + PART_ROWS])

    def _part(self, names: list[bytes]) -> bytes:
        before, rows = self._before, self._rows
        if self._limit or self._stale_last or before:
            images = [before.get(name) or self._image(name, rows[name]) for name in names]
            found = [image[0] for image in images]
            stale = [offset for offset, image in enumerate(images) if image[1]]
            kept = [image[2] for image in images] if self._limit else []
        else:
            found, stale, kept = [rows[name] for name in names], [], []
        counts, firsts, lasts = zip(*found, strict=True) if found else ((), (), ())
        pieces = [u32(self._limit), u32(len(names)), array("H", map(len, names)).tobytes()]
        pieces += [array("Q", column).tobytes() for column in (counts, firsts, lasts)]
        pieces += [u32(len(stale)), array("I", stale).tobytes()]
        if self._limit:
            pieces += [array("I", map(len, kept)).tobytes(), array("Q", chain.from_iterable(kept)).tobytes()]
        return b"".join((*pieces, *names))

    def close(self) -> None:
        """The index need not note changes any more."""
        self._index.leave(self)
