"""The inbox of a stream's leader: blocks from other brokers' windows wait here for their verdicts (SF-10,
SF-11).

Blocks are judged in the order of their arrival and become sections of the turn's entry. Every sender gets an
answer: its verdicts once they are committed, the number that the leader expects next, or the state of its
session.
"""

from __future__ import annotations

from collections import deque

from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.encoding.sections import (
    Section,
    SessionKey,
    VerdictRun,
    count_of,
    encode_messages,
    encode_session,
)
from supercluster.broker.jetstream.links.frames import Forward, Frame, encode_numbered
from supercluster.broker.jetstream.publish.admission import Answer
from supercluster.broker.jetstream.publish.host import StreamHost
from supercluster.broker.jetstream.publish.leader_turn import LeaderTurn
from supercluster.broker.jetstream.state.publish_sessions import SessionState
from supercluster.broker.jetstream.state.stream import Applied, StreamState

# Forwards that wait for a turn. A window resends what was dropped here.
FORWARDS_MAX = 8192
# Appended and not committed bytes at which the leader takes no more: its followers are too slow, and windows hold.
UNCOMMITTED_BYTES_MAX = 64 * 1024 * 1024


_Block = tuple[SessionKey, int, int, int]


def _block(forward: Forward) -> _Block:
    """What a repeated forward has in common with the first one."""
    return forward.session, forward.first_number, forward.config_version, len(forward.block)


class PublishInbox:
    def __init__(self, group: str, host: StreamHost) -> None:
        self._group = group
        self._host = host
        self._forwards: deque[tuple[Forward, bool]] = deque()
        self._waiting: set[_Block] = set()
        """What of `_forwards` is of which block."""
        self._opens: list[SessionKey] = []
        self._verdicts: dict[SessionKey, list[VerdictRun]] = {}
        self._asked_again: dict[SessionKey, tuple[int, int]] = {}

    def clear(self) -> None:
        """This replica ceased to lead: the windows ask the next leader."""
        self._forwards.clear()
        self._waiting.clear()
        self._opens.clear()
        self._verdicts.clear()
        self._asked_again.clear()

    def not_appended(self) -> None:
        """What was judged is not in the log: ask for it again, though it was asked for before."""
        self._asked_again.clear()

    def offer(self, forward: Forward, *, early: bool) -> None:
        """A block from a broker's window. Dropped when too much waits: the window repeats it. A leader that is full is asked again
        for what waits here already, which is not kept twice."""
        block = _block(forward)
        if len(self._forwards) < FORWARDS_MAX and block not in self._waiting:
            self._waiting.add(block)
            self._forwards.append((forward, early))

    def open_session(self, key: SessionKey) -> None:
        """A broker's process wants to send."""
        if len(self._opens) < FORWARDS_MAX:
            self._opens.append(key)

    # ---- proposing ------------------------------------------------------------------------------------------------

    def put(self, turn: LeaderTurn) -> None:
        """Openings of sessions and blocks of messages, as soon as the stream's configuration is in the log."""
        if turn.stream.state.config_version or turn.admission.config_sent:
            if self._opens:
                self._put_sessions(turn)
            if self._forwards:
                self._put_messages(turn)

    def _put_sessions(self, turn: LeaderTurn) -> None:
        end, state = turn.admission.end, turn.stream.state
        opens, self._opens = self._opens, []
        for key in opens:
            if not end.may_open(key):
                self._tell_opened(key, is_open=False)
            elif state.sessions.current(key) is not None:
                self._tell_opened(key, is_open=True)
            elif end.session(key) is None:
                end.opened(key)
                turn.proposal.add(Section.SESSION_OPEN, [encode_session(key)])

    def _put_messages(self, turn: LeaderTurn) -> None:
        """Where an entry is not taken, what waits is for the next turn."""
        admission, log, now_ns = turn.admission, turn.log, turn.time_ns
        while self._forwards:
            if admission.end.is_removing or admission.end.unapplied_bytes > UNCOMMITTED_BYTES_MAX:
                break  # What waits stays in line; the windows behind it fill up and publishers slow down (MV-11).
            forward, early = self._forwards.popleft()
            self._waiting.discard(_block(forward))
            room = log.has_room(len(forward.block) + turn.proposal.size + admission.batches.bytes)
            try:
                taken = admission.take(forward, now_ns, room=room)
            except WireError as error:
                self._bad(forward, error)
                continue
            if taken.answer is not Answer.TAKEN:
                self._answer(forward, taken.answer, taken.next_number, turn.stream.state)
                continue
            self._asked_again.pop(forward.session, None)
            self._answer_first_half(forward, taken.next_number, turn.stream.state)
            for piece in taken.pieces:
                # A block may end several batches of some MiB, so what is full is looked at piece by piece.
                run, proposal = piece.section.run, turn.proposal
                proposal.put_own(piece.own, run.first_seq - len(piece.own) // 3)
                proposal.add(Section.MESSAGES, encode_messages(piece.section))
                proposal.count_from(run.first_seq, run.stored)
                if early:
                    proposal.early.append((forward.session, run))
                if proposal.is_full and not turn.next_entry():
                    return

    def answer_known(self, state: StreamState) -> None:
        """While the stream is closed nothing is judged: what was judged before is answered, and the rest stays in line, where windows
        that send it again find it."""
        for forward, early in [self._forwards.popleft() for _ in range(len(self._forwards))]:
            session = state.sessions.current(forward.session)
            if session is None or forward.first_number > session.last_number:
                self._forwards.append((forward, early))
                continue
            self._waiting.discard(_block(forward))
            self._answer_known(forward, session)
        opens, self._opens = self._opens, []
        for key in opens:
            if state.sessions.current(key) is not None:
                self._tell_opened(key, is_open=True)
            elif state.sessions.shut_out(key):
                self._tell_opened(key, is_open=False)
            else:
                self._opens.append(key)

    @property
    def has_waiting(self) -> bool:
        """Does any block wait for a turn?"""
        return bool(self._forwards)

    # ---- answering ------------------------------------------------------------------------------------------------

    def _answer(self, forward: Forward, answer: Answer, next_number: int, state: StreamState) -> None:
        key = forward.session
        if answer is Answer.KNOWN:
            session = state.sessions.current(key)
            if session is not None:
                self._answer_known(forward, session)
        elif answer is Answer.AGAIN_FROM:
            # Once per gap: each block behind it that is on its way would have the whole window sent again. Should the
            # word be lost, the window repeats by itself, from its first block on; it may lack the number (SF-9), so it is
            # told once more.
            asked, behind = self._asked_again.get(key, (0, 0))
            if asked == next_number and forward.first_number > behind:
                return
            self._asked_again[key] = next_number, forward.first_number
            self._tell_again(key, next_number)
        elif answer is Answer.OPEN_FIRST:
            self._tell_again(key, 0)
        else:
            self._tell_opened(key, is_open=False)

    def _answer_first_half(self, forward: Forward, next_number: int, state: StreamState) -> None:
        """A window that sends again makes large blocks of small ones, of which the first may be known: without their verdicts it
        would take those on the rest for a gap, and send all again."""
        if forward.first_number < next_number:
            session = state.sessions.current(forward.session)
            if session is not None:
                self._answer_known(forward, session)

    def _answer_known(self, forward: Forward, session: SessionState) -> None:
        """With the verdicts on this block alone: a window sends all its blocks again, and each gets its own answer."""
        try:
            known = session.verdicts(forward.first_number, count_of(forward.block))
        except WireError as error:
            self._bad(forward, error)
            return
        if known:
            self._host.verdicts(self._group, forward.session, known, appended=False)

    def _bad(self, forward: Forward, error: WireError) -> None:
        self._host.event(self._group, "BadFrame", f"forward of {forward.session.node}: {error}")

    def _tell_opened(self, key: SessionKey, *, is_open: bool) -> None:
        self._host.post(key.node, Frame.OPENED, encode_numbered(self._group, key, int(is_open)))

    def _tell_again(self, key: SessionKey, number: int) -> None:
        self._host.post(key.node, Frame.AGAIN, encode_numbered(self._group, key, number))

    def applied(self, done: Applied) -> None:
        """A committed entry was applied: its verdicts and openings are in force."""
        for key, run in done.verdicts:
            self._verdicts.setdefault(key, []).append(run)
        for key in done.opened:
            self._tell_opened(key, is_open=True)

    def send_verdicts(self) -> bool:
        """The turn's verdicts, one frame per sender. False when there are none."""
        found, self._verdicts = self._verdicts, {}
        for key, runs in found.items():
            self._host.verdicts(self._group, key, runs, appended=False)
        return bool(found)
