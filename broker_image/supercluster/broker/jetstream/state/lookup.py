"""Finds messages of a stream for single or batched reads: by sequence, by time, by subject.

It reads applied state and changes nothing. A scan is a generator (`turn/slices.py`): it yields between two
slices, and the stream may change there.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence

from supercluster.broker.jetstream.state.log_reader import Message
from supercluster.broker.jetstream.state.messages import StoredMessages
from supercluster.broker.jetstream.state.subject_index import SubjectIndex
from supercluster.broker.jetstream.subjects.filters import compile_filters, is_literal, is_valid_filter

SCAN_MAX = 131_072
"""Messages that one search for what was the last of some subjects looks at."""
LOOKED_AT_MAX = 4096
"""In one slice."""
SLICE_UNITS = 1500
"""About what a slice takes, of subjects or of messages."""
_TRIES = 3
"""What was found may be removed before the search is over."""


class TooMuchError(Exception):
    """More than one request may ask for."""


def seq_at(state: StoredMessages, time_ns: int) -> int:
    """The first sequence at or behind a time, found by halving: times never go back along the log (SF-13)."""
    low, high = state.first_seq, state.last_seq + 1
    while low < high:
        middle = (low + high) // 2
        seq = state.past(middle)
        decoded = state.reader.entry_of(seq)
        if seq > state.last_seq or (decoded is not None and decoded.time_of(seq) >= time_ns):
            high = middle
        else:
            low = middle + 1
    return low


def newest_behind(state: StoredMessages, pattern: str, after_seq: int) -> int:
    """The last sequence behind another one whose subject matches; 0 when none does. For few messages: it is not sliced."""
    wanted = compile_filters((pattern,))
    seq = state.last_seq
    while (seq := state.before(seq)) > after_seq:
        decoded = state.reader.entry_of(seq)
        if decoded is not None and (wanted is None or wanted(decoded.subjects[seq - decoded.first_seq])):
            return seq
        seq -= 1
    return 0


def last_seq_of(subjects: SubjectIndex, filters: Sequence[str]) -> Generator[int, None, int]:
    """The last sequence whose subject matches; 0 when none does."""
    last = 0
    for rows in subjects.slices(filters):
        last = max(last, max((row[3] for row in rows), default=0))
        yield SLICE_UNITS
    return last


def last_of(state: StoredMessages, subject: str) -> Generator[int, None, Message | None]:
    """The last message whose subject matches."""
    if not is_valid_filter(subject):
        return None
    if is_literal(subject):
        seq = state.subjects.last_seq(subject.encode())
        return state.message(seq) if seq else None
    for _ in range(_TRIES):
        seq = yield from last_seq_of(state.subjects, (subject,))
        message = state.message(seq) if seq else None
        if message is not None or not seq:
            return message
    return None


def next_from(
    state: StoredMessages, from_seq: int, subject: str = ""
) -> Generator[int, None, Message | None]:
    """The first message at or behind `from_seq` whose subject matches (any, without one)."""
    if subject and not is_valid_filter(subject):
        return None
    wanted = compile_filters((subject,)) if subject else None
    seq = max(from_seq, state.first_seq)
    if wanted is not None and is_literal(subject):
        raw = subject.encode()
        if not state.subjects.count(raw) or state.subjects.last_seq(raw) < seq:
            return None
        seq = max(seq, state.subjects.first_seq_hint(raw))
    looked_at = 0
    while (seq := state.past(max(seq, state.first_seq))) <= state.last_seq:
        decoded = state.reader.entry_of(seq)
        if decoded is None:
            seq += 1
            continue
        offset = decoded.first_seq
        end = min(offset + decoded.count, seq + LOOKED_AT_MAX)
        for at in range(seq, end):
            if (wanted is None or wanted(decoded.subjects[at - offset])) and state.has(at):
                return decoded.message(at)
        looked_at += end - seq
        seq = end
        if looked_at >= LOOKED_AT_MAX:
            looked_at = 0
            yield SLICE_UNITS
    return None


def lasts(
    state: StoredMessages, patterns: Sequence[str], up_to_seq: int, subjects_max: int
) -> Generator[int, None, list[int]]:
    """The last sequence of every subject that matches one of the patterns, as it was when `up_to_seq` was the stream's
    last message; in rising order.

    Raises:
        TooMuchError: more than `subjects_max` subjects match, or what was the last then is too far to search for.
    """
    patterns = [pattern for pattern in dict.fromkeys(patterns) if is_valid_filter(pattern)]
    if not patterns:
        return []
    found: list[int] = []
    earlier: set[bytes] = set()
    for rows in state.subjects.slices(patterns):
        for subject, _, first, last in rows:
            if last <= up_to_seq:
                found.append(last)
            elif first <= up_to_seq:
                earlier.add(subject)
            if len(found) + len(earlier) > subjects_max:
                yield SLICE_UNITS  # A job's end counts for nothing in a turn.
                raise TooMuchError
        yield SLICE_UNITS
    before = yield from _lasts_before(state, earlier, up_to_seq)
    return sorted(found + before)


def _lasts_before(
    state: StoredMessages, subjects: set[bytes], up_to_seq: int
) -> Generator[int, None, list[int]]:
    found: list[int] = []
    left, looked_at = SCAN_MAX, 0
    seq = min(up_to_seq, state.last_seq)
    while subjects and (seq := state.before(seq)) >= state.first_seq:
        decoded = state.reader.entry_of(seq)
        if decoded is None:
            seq -= 1
            continue
        first = max(decoded.first_seq, state.first_seq, seq - LOOKED_AT_MAX + 1)
        for at in range(seq, first - 1, -1):
            subject = decoded.subjects[at - decoded.first_seq]
            if subject in subjects and state.has(at):
                subjects.discard(subject)
                found.append(at)
        left -= seq - first + 1
        looked_at += seq - first + 1
        if left <= 0 and subjects:
            raise TooMuchError
        seq = first - 1
        if looked_at >= LOOKED_AT_MAX:
            looked_at = 0
            yield SLICE_UNITS
    return found
