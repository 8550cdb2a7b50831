"""Ingest windows: what a broker took it keeps, in order, until somebody who knows says what became of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supercluster.broker.jetstream.encoding.codec import WireError
from supercluster.broker.jetstream.encoding.sections import (
    Exceptional,
    SessionKey,
    Verdict,
    VerdictRun,
    decode_block,
)
from supercluster.broker.jetstream.publish.settlement import BLOCK_BYTES_MAX, MERGED_MS, WindowBlock
from supercluster.broker.jetstream.publish.window import (
    RETRY_MAX_MS,
    RETRY_MS,
    SessionPhase,
    Window,
)

KEY = SessionKey("n", "vol", 1)


@dataclass(eq=False)
class Client:
    """A `ports.Publisher` that notes."""

    paused: bool = False
    errors: list[str] = field(default_factory=list)

    def pause(self, stream: str) -> None:
        self.paused = True

    def resume(self, stream: str) -> None:
        self.paused = False

    def error(self, text: str) -> None:
        self.errors.append(text)


@dataclass
class Leader:
    """A `window.Sender` whose leader may be away."""

    there: bool = True
    opens: int = 0
    forwards: list[tuple[int, int]] = field(default_factory=list)

    def open_session(self, window: Window) -> bool:
        self.opens += 1
        return self.there

    def forward(self, window: Window, block: WindowBlock) -> bool:
        if self.there:
            self.forwards.append((block.first_number, block.count))
        return self.there


def window(*, bytes_max: int = 1 << 20, wait_ms: int = 1000, ack_policy: str = "commit") -> Window:
    return Window(
        "g", "$G", "S", KEY, bytes_max=bytes_max, wait_ms=wait_ms, ack_policy=ack_policy, notify=set()
    )


def take(target: Window, client: Client, *names: str, header: bytes = b"", size: int = 1) -> None:
    for name in names:
        assert target.take(client, b"s", name.encode(), header, b"x" * size)


def opened(target: Window, leader: Leader) -> None:
    target.flush(leader, 0)
    target.opened(leader, 0)


@pytest.mark.covers("SF-10")
def test_a_session_is_opened_first_and_each_turn_is_one_block() -> None:
    target, leader, client = window(), Leader(), Client()
    take(target, client, "a", "b")
    target.flush(leader, 0)
    assert (leader.opens, leader.forwards, target.phase) == (1, [], SessionPhase.OPENING)
    take(target, client, "c")
    target.flush(leader, 0)
    assert (leader.opens, leader.forwards) == (1, [])
    target.opened(leader, 0)
    take(target, client, "d", "e")
    target.flush(leader, 0)
    assert leader.forwards == [(1, 3), (4, 2)], "what waited for the session is one block"
    assert target.unconfirmed == 5


@pytest.mark.covers("SF-10", "SF-3")
def test_a_new_leader_gets_again_in_order_what_has_no_verdict() -> None:
    target, leader, client = window(), Leader(), Client()
    take(target, client, "a")
    opened(target, leader)
    for now_ms, name in ((0, "b"), (MERGED_MS, "c")):
        take(target, client, name)
        target.flush(leader, now_ms)
    assert target.verdicts(VerdictRun(1, 1, 10), 1).acks == [(b"a", 10)]
    leader.there = False
    take(target, client, "d")
    target.flush(leader, 2 * MERGED_MS)
    leader.there, leader.forwards = True, []
    target.leader_changed(leader, 2 * MERGED_MS)
    assert leader.forwards == [(2, 1), (3, 1), (4, 1)]
    target.send_again(leader, 3 * MERGED_MS, 3)
    assert leader.forwards[3:] == [(3, 1), (4, 1)]
    target.reopen(leader, 4)
    assert target.phase is SessionPhase.OPENING


@pytest.mark.covers("SF-10", "SF-3")
def test_small_blocks_of_a_long_cut_are_sent_again_as_few_large_ones() -> None:
    """20 s at 500 turns a second: one frame each kept a leader busy for so long that its links fell silent."""
    target, leader, client = window(bytes_max=1 << 30), Leader(), Client()
    take(target, client, "first")
    opened(target, leader)
    leader.there = False
    names, large = [], b"x" * (BLOCK_BYTES_MAX // 2)
    for at in range(10_000):
        policy = b"NATS/1.0\r\nSupercluster-Ack: append\r\n\r\n" if at % 3 == 0 else b""
        names.append(b"%d" % at)
        assert target.take(client, b"s", names[-1], policy, large if at in (40, 41, 42) else names[-1])
        target.flush(leader, 2 * at)
    held = target.size_bytes
    leader.there, leader.forwards = True, []
    target.leader_changed(leader, 20_000)
    assert len(leader.forwards) <= 20_000 // MERGED_MS + 5
    assert [last + count for last, count in leader.forwards[:-1]] == [
        first for first, _ in leader.forwards[1:]
    ]
    assert all(len(block.data) < BLOCK_BYTES_MAX for block in target._blocks)
    again, leader.forwards = leader.forwards, []
    target.send_again(leader, 20_300)
    assert leader.forwards == again
    assert target.size_bytes == held == sum(block.size_bytes for block in target._blocks)
    assert target.appended(VerdictRun(1, 4, 1)).acks == [(b"0", 2)]
    acks = target.verdicts(VerdictRun(1, 10_001, 1), 20_300).acks
    assert [reply for reply, _ in acks] == [b"first", *names[1:]]
    assert [seq for _, seq in acks] == [1, *range(3, 10_002)]
    assert target.size_bytes == 0


@pytest.mark.covers("SF-15")
def test_what_was_given_up_is_not_sent_with_what_still_waits() -> None:
    target, leader, client = window(wait_ms=50), Leader(there=False), Client()
    take(target, client, "old")
    target.flush(leader, 0)
    for now_ms in (20, 30):
        take(target, client, f"new{now_ms}")
        target.flush(leader, now_ms)
    assert target.expire(60) == [(b"old", client)]
    leader.there = True
    target.leader_changed(leader, 60)
    target.opened(leader, 60)
    assert leader.forwards == [(1, 1), (2, 2)]
    assert target.verdicts(VerdictRun(1, 3, 1, (Exceptional(0, Verdict.VOID),)), 70).acks == [
        (b"new20", 1),
        (b"new30", 2),
    ]
    assert target.size_bytes == 0


def test_what_stays_unanswered_is_asked_again_ever_more_patiently() -> None:
    target, leader, client = window(), Leader(), Client()
    take(target, client, "a")
    opened(target, leader)
    asked, now_ms = [], 0
    while now_ms < 10_000:
        deadline = target.deadline_ms()
        assert deadline is not None
        now_ms = deadline
        before = len(leader.forwards)
        target.tick(leader, now_ms)
        assert len(leader.forwards) == before + 1
        asked.append(now_ms)
    gaps = [later - earlier for earlier, later in itertools.pairwise(asked)]
    assert gaps[0] == 2 * RETRY_MS
    assert gaps == sorted(gaps)
    assert gaps[-1] == RETRY_MAX_MS
    target.verdicts(VerdictRun(1, 1, 1), now_ms)
    assert target.deadline_ms() is None


def test_large_turns_are_cut_into_blocks() -> None:
    target, client = window(bytes_max=1 << 30), Client()
    third = BLOCK_BYTES_MAX // 3
    header = b"NATS/1.0\r\nSupercluster-Ack: append\r\n\r\n"
    for number in range(7):
        take(target, client, str(number), size=third, header=header if number in (1, 4) else b"")
    blocks = target.seal(0)
    assert [(block.first_number, block.count) for block in blocks] == [(1, 2), (3, 2), (5, 2), (7, 1)]
    assert [sorted(block.early) for block in blocks] == [[1], [], [0], []]
    assert sum(block.size_bytes for block in blocks) == target.size_bytes
    assert [len(decode_block(block.data).parts()) // 3 for block in blocks] == [2, 2, 2, 1]


@pytest.mark.covers("SF-15", "MV-11")
def test_a_full_window_takes_no_more_until_half_of_it_is_free() -> None:
    target, leader, client, other = window(bytes_max=1000), Leader(), Client(), Client()
    names = iter(range(100))
    opened(target, leader)
    target.phase = SessionPhase.OPEN
    while target.take(client, b"s", b"%d" % next(names), b"", b"x" * 35):
        target.flush(leader, 0)
    assert not target.take(other, b"s", b"", b"", b"")
    assert (client.paused, other.paused) == (True, True)
    held = target.unconfirmed
    assert held == 10
    target.verdicts(VerdictRun(1, 4, 1), 0)
    assert client.paused
    target.verdicts(VerdictRun(5, 2, 5), 0)
    assert (client.paused, other.paused) == (False, False)


@pytest.mark.covers("SF-11")
def test_verdicts_are_told_once_whatever_comes_again_or_is_missing() -> None:
    target, leader, client = window(), Leader(), Client()
    take(target, client, "a", "b", "c", "d", "e")
    opened(target, leader)
    gap = target.verdicts(VerdictRun(3, 1, 3), 0)
    assert (gap.acks, gap.ask_again) == ([], True)
    exceptions = (
        Exceptional(1, Verdict.DUPLICATE, 0, 4),
        Exceptional(2, Verdict.REFUSED, 10071, 7),
        Exceptional(3, Verdict.REROUTE),
    )
    first = target.verdicts(VerdictRun(1, 3, 20, exceptions[:2]), 0)
    assert (first.acks, first.duplicates) == ([(b"a", 20)], [(b"b", 4)])
    assert first.refused == [(b"c", client, exceptions[1])]
    again = target.verdicts(VerdictRun(1, 3, 20, exceptions[:2]), 0)
    assert (again.acks, again.duplicates, again.refused) == ([], [], [])
    rest = target.verdicts(VerdictRun(1, 5, 20, exceptions), 0)
    assert rest.acks == [(b"e", 21)]
    assert rest.rerouted == [(client, b"s", b"d", b"", b"x")]
    assert (target.unconfirmed, target.size_bytes) == (0, 0)
    with pytest.raises(WireError, match="never sent"):
        target.verdicts(VerdictRun(6, 1, 30), 0)


@pytest.mark.covers("RP-5")
def test_appended_numbers_are_answered_early_and_once() -> None:
    early = b"NATS/1.0\r\nSupercluster-Ack: append\r\n\r\n"
    silent = b"NATS/1.0\r\nSupercluster-Ack: none\r\n\r\n"
    target, leader, client = window(), Leader(), Client()
    take(target, client, "commit")
    take(target, client, "append", header=early)
    take(target, client, "none", header=silent)
    opened(target, leader)
    assert target.appended(VerdictRun(1, 3, 5)).acks == [(b"append", 6)]
    assert target.appended(VerdictRun(1, 3, 5)).acks == []
    assert target.verdicts(VerdictRun(1, 3, 5), 0).acks == [(b"commit", 5)]

    target = window(ack_policy="append")
    take(target, client, "a")
    take(target, client, "b", header=b"NATS/1.0\r\nSupercluster-Ack: commit\r\n\r\n")
    opened(target, leader)
    assert target.appended(VerdictRun(1, 2, 1)).acks == [(b"a", 1)]
    assert target.verdicts(VerdictRun(1, 2, 1), 0).acks == [(b"b", 2)]

    target = window(ack_policy="none")
    take(target, client, "a")
    opened(target, leader)
    assert target.appended(VerdictRun(1, 1, 1)).acks == []
    assert target.verdicts(VerdictRun(1, 1, 1), 0).acks == []


@pytest.mark.covers("SF-15")
def test_what_waits_too_long_is_given_up_but_keeps_its_numbers() -> None:
    target, leader, client = window(wait_ms=1000), Leader(), Client()
    take(target, client, "a", "b")
    target.flush(leader, 0)
    take(target, client, "c")
    target.flush(leader, 900)
    assert target.expire(999) == []
    assert target.expire(1000) == [(b"a", client), (b"b", client)]
    assert target.expire(1500) == []
    target.opened(leader, 1600)
    assert leader.forwards == [(1, 2), (3, 1)]
    void = target._blocks[0]
    assert decode_block(void.data).parts() == [b""] * 6
    # The leader may have had them before they were given up: then they count with the sequences.
    done = target.verdicts(VerdictRun(1, 3, 7, (Exceptional(1, Verdict.VOID),)), 1700)
    assert (done.acks, done.refused) == ([(b"c", 8)], [])
    assert target.unconfirmed == 0


def test_who_was_answered_is_not_refused_later() -> None:
    target, leader, client = window(wait_ms=1000, ack_policy="append"), Leader(), Client()
    take(target, client, "a", "b", "c")
    opened(target, leader)
    target.verdicts(VerdictRun(1, 1, 1), 0)
    target.appended(VerdictRun(1, 2, 1))
    assert target.expire(5000) == [(b"c", client)]
    target = window()
    take(target, client, "a", "b")
    opened(target, leader)
    target.verdicts(VerdictRun(1, 1, 1), 0)
    take(target, client, "c")
    assert [reply for reply, _ in target.close()] == [b"b", b"c"]
    assert target.size_bytes == 0


@pytest.mark.covers("SF-15")
def test_deleting_the_stream_lets_its_publishers_go_on() -> None:
    target, client = window(bytes_max=100), Client()
    take(target, client, "a", "b")
    assert not target.take(client, b"s", b"c", b"", b"x")
    assert client.paused
    assert [reply for reply, _ in target.close()] == [b"a", b"b"]
    assert not client.paused
    assert target.deadline_ms() is None


@given(
    st.lists(st.sampled_from(["take", "flush", "lead", "verdict", "lost", "again"]), max_size=60), st.data()
)
def test_no_message_is_lost_repeated_or_out_of_order_on_its_way_to_a_leader(
    steps: list[str], data: st.DataObject
) -> None:
    """A leader that takes only the next number stores each message once, in order, whatever is lost in between."""
    target, client = window(), Client()
    stored: list[bytes] = []
    acked: list[bytes] = []
    sent: list[bytes] = []
    way: list[WindowBlock] = []

    class Lossy(Leader):
        def forward(self, window: Window, block: WindowBlock) -> bool:
            way.append(block)
            return self.there

    leader = Lossy()

    def arrive() -> None:
        for block in way:
            if block.first_number <= len(stored) + 1:
                stored.extend(decode_block(block.data).parts()[2::3][len(stored) + 1 - block.first_number :])
        way.clear()

    def tell(up_to: int) -> None:
        if up_to > target.confirmed and target.phase is SessionPhase.OPEN:
            first = data.draw(st.integers(1, target.confirmed + 1))
            outcome = target.verdicts(VerdictRun(first, up_to - first + 1, first), 0)
            acked.extend(reply for reply, _ in outcome.acks)

    for step in [*steps, "flush", "again"]:
        if step == "take":
            sent.append(b"%d" % len(sent))
            target.take(client, b"s", sent[-1], b"", sent[-1])
        elif step == "flush":
            target.flush(leader, 0)
            arrive()
        elif step == "lead":
            target.leader_changed(leader, 0)
            arrive()
        elif step == "lost":
            target.flush(leader, 0)
            way.clear()
        elif step == "verdict":
            if len(stored) > target.confirmed:
                tell(data.draw(st.integers(target.confirmed + 1, len(stored))))
        elif step == "again":
            target.opened(leader, 0)
            target.send_again(leader, 0)
            arrive()
    tell(len(stored))
    assert stored == sent
    assert acked == sent
    assert target.unconfirmed == 0


@pytest.mark.covers("CL-7")
def test_who_was_promised_an_acknowledgement_and_has_none_is_known() -> None:
    target, leader = window(), Leader()
    waits, plain, later, other = Client(), Client(), Client(), Client()
    take(target, waits, "r1")
    assert target.take(plain, b"s", b"", b"", b"x")
    opened(target, leader)
    take(target, later, "r2")
    asked = [waits, plain, later, other]
    assert target.awaiting_answers(asked) == {waits, later}, "not yet forwarded ones as well"
    assert target.awaiting_answers([other]) == set()
    assert target.unsettled_of(asked) == {waits, plain, later}, (
        "plain publishers as well (rule 10 of the cutover)"
    )
    assert target.overdue_of(asked, -1) == set()
    assert target.overdue_of(asked, 0) == {waits, plain}, "a block's time begins when it is sealed"
    target.verdicts(VerdictRun(1, 2, 1), 0)
    assert target.overdue_of(asked, 0) == set()
    assert target.awaiting_answers(asked) == {later}
    assert target.unsettled_of(asked) == {later}
    target.flush(leader, 0)
    assert target.unsettled_of([later, other]) == {later}
    target.verdicts(VerdictRun(3, 1, 3), 0)
    assert target.awaiting_answers(asked) == set()
    assert target.unsettled_of(asked) == set()
