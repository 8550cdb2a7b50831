"""The position of a consumer among messages that it was never given: it reads on, skips messages that the
filters exclude, and counts the remaining ones.

If few messages match, the stream's subject index gives the next position; if most do, whole batches are read
and filtered. The count of pending messages is updated with each batch, and recounted only after removals that
it cannot follow.
"""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.message_source import MessageBatch, MessageSource
from supercluster.broker.jetstream.subjects.filters import compile_filters, literals

# A pump looks at no more than this many messages for the filters, so that it stays short.
SCAN_MAX = 4096
# The same of chosen messages, each of which is looked up, where they were removed.
CHOSEN_MAX = 1024
# Without a match in this many messages the subject index is asked, even for wildcards, where asking is not cheap.
_ASK_INDEX_AFTER = 512
_SUBJECTS_REMEMBERED = 65_536


class Cursor:
    """New messages for one consumer. `took` says what was really delivered."""

    __slots__ = (
        "_asking_is_cheap",
        "_counted_to",
        "_known",
        "_next",
        "_pending",
        "_scan_left",
        "_state",
        "_undelivered",
        "_wanted",
        "looked_at",
        "scan_ended",
    )

    def __init__(self, state: ConsumerState) -> None:
        self._state = state
        self.looked_at = 0
        """Messages that were read for the filters, all in all."""
        self.restart()

    def restart(self) -> None:
        """Forget what is carried on: after a change of the filters, or removals."""
        filters = self._state.config.filter_subjects
        self._wanted = compile_filters(filters)
        self._asking_is_cheap = bool(filters) and literals(filters) is not None
        self._known: dict[bytes, bool] = {}
        self._next = self._undelivered = self._state.next_sseq
        self._pending = 0
        self._counted_to = -1
        self._scan_left = SCAN_MAX
        self.scan_ended = True

    # ---- counting -------------------------------------------------------------------------------------------------

    @property
    def _from(self) -> int:
        """The first sequence that `_pending` counts: what is chosen before is counted by itself."""
        chosen = self._state.last_seqs
        return max(self._undelivered, chosen[-1] + 1 if chosen else 0)

    def pending(self, source: MessageSource) -> int:
        """Messages that match and were not delivered yet; as far as they are counted, where `count_up` says no."""
        state = self._state
        chosen = len(state.last_seqs) - state.last_seqs_at(0)
        if self._wanted is None:
            return chosen + source.pending_count((), state.last_seqs[-1] if chosen else state.next_sseq - 1)
        self.count_up(source)
        return chosen + self._pending

    def count_up(self, source: MessageSource) -> bool:
        """Count what came since. False: that is more than a turn may take, and is to be counted by `pending_counts`."""
        if self._wanted is None:
            return True
        if source.first_seq > self._from:
            self._follow_head(source)
        filters, last_seq = self._state.config.filter_subjects, source.last_seq
        if self._counted_to < last_seq:
            is_begun = self._counted_to >= 0
            found = source.count_at_once(filters, max(self._counted_to, self._from - 1))
            if found is None:
                return False
            self._pending = found + (self._pending if is_begun else 0)
            self._counted_to = last_seq
        return True

    def _follow_head(self, source: MessageSource) -> None:
        """What was not delivered yet was removed from the stream's head."""
        gone = source.gone_from(self._from) if self._counted_to >= 0 else None
        if gone is None:
            self._counted_to, self._pending = -1, 0
        else:
            matches, counted_to = self._state.matches, self._counted_to
            self._pending -= sum(seq <= counted_to and matches(subject) for seq, subject in gone)
        self._undelivered = source.first_seq

    @property
    def counts_from(self) -> int | None:
        """Messages behind this sequence are to be counted; None: there is nothing to count."""
        return self._from - 1 if self._wanted is not None else None

    def counted(self, found: int, after: int, up_to: int, first_seq: int) -> None:
        """So many messages match of those behind `after` that are there up to `up_to`. Void when some were delivered since."""
        if self._from <= max(after + 1, first_seq):
            self._pending, self._counted_to = found, up_to
            self._undelivered = max(self._undelivered, first_seq)

    def took(self, seqs: Sequence[int]) -> None:
        """These messages were delivered."""
        chosen = self._state.last_seqs
        if not chosen or seqs[0] > chosen[-1]:
            self._pending = max(self._pending - len(seqs), 0)
        self._next = self._undelivered = max(self._next, seqs[-1] + 1)

    def removed(self, seq: int, subject: bytes) -> None:
        """A message was removed from within the stream."""
        if self._from <= seq <= self._counted_to and self._state.matches(subject):
            self._pending = max(self._pending - 1, 0)

    # ---- reading --------------------------------------------------------------------------------------------------

    def next(self, source: MessageSource, count_max: int, bytes_max: int) -> MessageBatch | None:
        """The next messages to deliver, None when there are none (or none in what one scan may look at: then
        `scan_ended` is False)."""
        self.scan_ended = True
        self._next = max(self._next, self._state.next_sseq, source.first_seq)
        if self._state.last_seqs:
            found = self._next_chosen(source)
            if found is not None or not self.scan_ended:
                return found
        if self._next > source.last_seq:
            return None
        if self._wanted is None:
            batch = source.read(self._next, count_max, bytes_max)
            return batch if len(batch) else None
        return self._next_matching(source, count_max, bytes_max)

    def _next_chosen(self, source: MessageSource) -> MessageBatch | None:
        """deliver_policy last_per_subject: of the messages that were there at the start, only each subject's last."""
        chosen = self._state.last_seqs
        first = self._state.last_seqs_at(self._next)
        for at in range(first, min(len(chosen), first + CHOSEN_MAX)):
            batch = source.read(chosen[at], 1, 1)
            if len(batch) and batch.seqs[0] == chosen[at]:
                return batch
            self.looked_at += 1
            self._next = chosen[at] + 1
        if first + CHOSEN_MAX < len(chosen):
            self.scan_ended = False
        else:
            self._next = max(self._next, chosen[-1] + 1)
        return None

    def _next_matching(self, source: MessageSource, count_max: int, bytes_max: int) -> MessageBatch | None:
        filters = self._state.config.filter_subjects
        ask = self._asking_is_cheap
        while self._next <= source.last_seq and self._scan_left > 0:
            if ask:
                at = source.next_matching(filters, self._next)
                if at is None:
                    self._next = source.last_seq + 1
                    return None
                self._next = max(self._next, at)
            limit = self._scan_left if ask else min(self._scan_left, _ASK_INDEX_AFTER)
            self._next, looked_at = source.skip(self._fits, self._next, limit)
            self._looked(looked_at)
            if looked_at < limit and self._next <= source.last_seq:
                batch = source.read(self._next, max(count_max, 64), bytes_max)
                self._looked(len(batch))
                found = self._sieve(batch, count_max)
                if found is not None:
                    return found
                self._next = batch.seqs[-1] + 1 if len(batch) else source.last_seq + 1
            ask = True
        self.scan_ended = self._next > source.last_seq
        return None

    def _looked(self, count: int) -> None:
        self.looked_at += count
        self._scan_left -= count

    def refill(self) -> None:
        """A pump begins: it may look at so many messages again."""
        self._scan_left = SCAN_MAX

    def _fits(self, subject: bytes) -> bool:
        known = self._known
        fits = known.get(subject)
        if fits is None:
            if len(known) > _SUBJECTS_REMEMBERED:
                known.clear()
            fits = known[subject] = self._wanted is None or self._wanted(subject)
        return fits

    def _sieve(self, batch: MessageBatch, count_max: int) -> MessageBatch | None:
        """The first messages of the batch that match; None when none does."""
        wanted, known = self._wanted, self._known
        if wanted is None:
            return batch
        if len(known) > _SUBJECTS_REMEMBERED:
            known.clear()
        kept: list[int] = []
        for index, subject in enumerate(batch.subjects):
            fits = known.get(subject)
            if fits is None:
                fits = known[subject] = wanted(subject)
            if fits:
                kept.append(index)
                if len(kept) == count_max:
                    break
        if not kept:
            return None
        if len(kept) == len(batch):
            return batch
        return MessageBatch(
            [batch.seqs[i] for i in kept],
            [batch.subjects[i] for i in kept],
            [batch.headers[i] for i in kept],
            [batch.payloads[i] for i in kept],
            [batch.times[i] for i in kept],
        )
