"""Converts a copy that followed a group of another super-cluster (blue) into a member of its own group
(green), with its files.

All converting copies append the same first entry after HANDED: a configuration with green's members, in the
term after that of HANDED. So their logs are equal up to it, and any majority of them may elect. No copy votes
or leads before.

Every step may be repeated: reopening the copy completes a conversion that a crash interrupted. It works on a
log that no other part uses.
"""

from __future__ import annotations

from dataclasses import dataclass

from supercluster.broker.jetstream.encoding.codec import Reader
from supercluster.broker.jetstream.encoding.sections import Section, sections
from supercluster.broker.jetstream.state.cut import Cut, CutStage, Handed
from supercluster.broker.migration.worlds import near_member
from supercluster.broker.ports import StreamLog
from supercluster.broker.raft.confchange import Membership, membership_of
from supercluster.broker.raft.entry import Entry, EntryKind, make_entry

REFUSED_ENTRIES_MAX = 64
"""Behind HANDED, a refused copy has the first entry, one of each leader, REFUSED, and changes of members."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A log that was converted, as its end says: perhaps nobody came to register that."""

    attempt: int
    members: tuple[str, ...]


def why_not(cut: Cut, migration: str, attempt: int, member: str, applied_index: int, log: StreamLog) -> str:
    """Why a copy does not convert; empty: it does. `member` is its name in blue's group. Pure but for the log's terms."""
    if cut.stage is not CutStage.HANDED or (cut.migration, cut.attempt) != (migration, attempt):
        return "it has not applied HANDED of that attempt"
    if member not in cut.members:
        return "blue handed the stream to other copies"
    if applied_index != cut.handed_index:
        return f"it is at entry {applied_index}, behind HANDED, which is {cut.handed_index}"
    if log.base_index >= cut.handed_index or log.term(cut.handed_index) != cut.handed_term:
        return "its log does not have HANDED"
    return ""


def members_of(cut: Cut) -> tuple[str, ...]:
    """Green's first members: as blue's log names them, so that all copies have the same."""
    return tuple(map(near_member, cut.members))


def begin_group(log: StreamLog, cut: Cut) -> None:
    """The log goes on behind HANDED with green's members, durably."""
    index, term = cut.handed_index + 1, cut.handed_term + 1
    members = members_of(cut)
    begun = begun_at_end(log)
    if begun is None or begun != Begun(cut.attempt, members) or log.last_index != index:
        handed = log.entry(cut.handed_index)
        assert handed is not None, "the log has HANDED"
        log.truncate_after(cut.handed_index)
        log.save_vote(max(log.load_vote()[0], term), "")
        log.append([_first_entry(handed, members)])
    log.sync()
    log.settle()


def _first_entry(handed: Entry, members: tuple[str, ...]) -> Entry:
    """Green's time begins at blue's."""
    index, term = handed.index + 1, handed.term + 1
    payload = membership_of(members, index=index).encode()
    return make_entry(index=index, term=term, kind=EntryKind.CONFIG, time_ns=handed.time_ns, payload=payload)


def begun_at_end(log: StreamLog) -> Begun | None:
    """Does the log end with HANDED and the first entry of green's group?"""
    last, handed = log.entry(log.last_index), log.entry(log.last_index - 1)
    if last is None or handed is None or last.kind != EntryKind.CONFIG or last.term != handed.term + 1:
        return None
    attempt = _handed_attempt(handed)
    if attempt is None:
        return None
    members = Membership.decode(last.payload).all_voters
    is_first = bytes(last.payload) == bytes(_first_entry(handed, members).payload)
    return Begun(attempt, members) if is_first else None


def attempt_near_end(log: StreamLog) -> int | None:
    """The attempt of which a converted log has HANDED; None: it has gone on for longer than a refused one does."""
    for index in range(log.last_index, max(log.base_index, log.last_index - REFUSED_ENTRIES_MAX), -1):
        entry = log.entry(index)
        attempt = _handed_attempt(entry) if entry is not None else None
        if attempt is not None:
            return attempt
    return None


def _handed_attempt(entry: Entry) -> int | None:
    if not entry.has_sections:
        return None
    found = [body for kind, body in sections(entry.payload) if kind == Section.HANDED]
    return Handed.decode(Reader(found[0])).attempt if found else None
