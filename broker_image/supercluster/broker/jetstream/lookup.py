"""Finding messages of a stream for those that ask for one or some: by sequence, by time, by subject.

Reads applied state and changes nothing. What takes a scan is bounded, for the leader serves others meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from supercluster.broker.jetstream.filters import compile_filters, is_valid_filter
from supercluster.broker.jetstream.messages import Message
from supercluster.broker.jetstream.stored import StoredMessages

SCAN_MAX = 131_072
"""Messages that one search for what was the last of some subjects looks at."""


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


def last_of(state: StoredMessages, subject: str) -> Message | None:
    """The last message whose subject matches."""
    if not is_valid_filter(subject):
        return None
    seq = state.subjects.last_for_filters(subject)
    return state.message(seq) if seq else None


def next_from(state: StoredMessages, from_seq: int, subject: str = "") -> Message | None:
    """The first message at or behind `from_seq` whose subject matches (any, without one)."""
    if subject and not is_valid_filter(subject):
        return None
    wanted = compile_filters((subject,)) if subject else None
    seq = max(from_seq, state.first_seq)
    while seq <= state.last_seq:
        if wanted is not None:
            found = state.subjects.next_matching((subject,), seq)
            if found is None:
                return None
            seq = max(seq, found)
        seq = state.past(seq)
        decoded = state.reader.entry_of(seq)
        if decoded is None:
            seq += 1
            continue
        end = decoded.first_seq + decoded.count
        for at in range(seq, end):
            message = state.message(at)
            if message is not None and (wanted is None or wanted(message.subject)):
                return message
        seq = end
    return None


def lasts(state: StoredMessages, patterns: Sequence[str], up_to_seq: int, subjects_max: int) -> list[int]:
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
    for subject, first, last in state.subjects.bounds(patterns):
        if last <= up_to_seq:
            found.append(last)
        elif first <= up_to_seq:
            earlier.add(subject)
        if len(found) + len(earlier) > subjects_max:
            raise TooMuchError
    return sorted(found + _lasts_before(state, earlier, up_to_seq))


def _lasts_before(state: StoredMessages, subjects: set[bytes], up_to_seq: int) -> list[int]:
    found: list[int] = []
    left = SCAN_MAX
    seq = min(up_to_seq, state.last_seq)
    while subjects and (seq := state.before(seq)) >= state.first_seq:
        decoded = state.reader.entry_of(seq)
        if decoded is None:
            seq -= 1
            continue
        for at in range(seq, max(decoded.first_seq, state.first_seq) - 1, -1):
            subject = decoded.message(at).subject
            if subject in subjects and state.has(at):
                subjects.discard(subject)
                found.append(at)
        left -= seq - decoded.first_seq + 1
        if left <= 0 and subjects:
            raise TooMuchError
        seq = decoded.first_seq - 1
    return found
