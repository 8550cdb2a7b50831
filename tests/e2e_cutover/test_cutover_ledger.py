"""The ledger of a cutover notices what is lost, repeated, displaced, foreign and out of order, and what may be so."""

from __future__ import annotations

import pytest
from e2e.cutover.kinds import (
    DELETED,
    KINDS,
    PLAIN,
    PRELOADED,
    PRELOADED_MODE,
    REPEATED,
    STREAMS_OF,
    WINDOWED,
    stream_of,
)
from e2e.cutover.ledger import Deliveries, Ledger, Sent, Verdict, author, payload

ALL = [(mode, number) for number in range(1, 5) for mode in (PLAIN, REPEATED, WINDOWED)]


def placed(messages: list[tuple[int, int]]) -> dict[str, dict[int, bytes]]:
    """These messages, each in its stream, in this order, with sequences from 1."""
    streams: dict[str, dict[int, bytes]] = {}
    for mode, number in messages:
        stream = streams.setdefault(stream_of(mode, number), {})
        stream[len(stream) + 1] = payload(mode, number)
    return streams


def confirmed(mode: int, count: int = 4) -> Sent:
    """All of a publisher's messages were confirmed, where `placed(ALL)` has them."""
    found = {}
    for messages in placed(ALL).values():
        for sequence, body in messages.items():
            whose = author(body)
            assert whose is not None
            if whose[0] == mode:
                found[whose[1]] = sequence
    return Sent(mode, count, found if mode != PLAIN else {})


def verdict(streams: dict[str, dict[int, bytes]], *others: Sent) -> Verdict:
    sent = {mode: confirmed(mode) for mode in (PLAIN, REPEATED, WINDOWED)}
    sent |= {found.mode: found for found in others}
    ledger = Ledger(sent.values(), preloaded="")
    for stream, messages in streams.items():
        ledger.note(stream, messages)
    return ledger.verdict()


def counts(found: Verdict) -> tuple[int, int, int, int, int]:
    return found.lost, found.repeated, found.disordered, found.displaced, found.foreign


def test_every_confirmed_message_once_where_it_was_confirmed_is_clean() -> None:
    found = verdict(placed(ALL))
    assert (found.is_clean, found.examples) == (True, [])


@pytest.mark.parametrize("missing", ALL)
def test_a_message_that_was_confirmed_or_is_plain_and_is_not_there_is_lost(missing: tuple[int, int]) -> None:
    streams = placed(ALL)
    stream = streams[stream_of(*missing)]
    del stream[next(n for n, body in stream.items() if body == payload(*missing))]
    found = verdict(streams)
    assert counts(found) == (1, 0, 0, 0, 0)
    assert f"{missing[1]} of {stream_of(*missing)}" in found.examples[0]


def test_one_without_an_answer_may_be_there_or_not_but_not_twice() -> None:
    three = Sent(WINDOWED, 4, {n: at for n, at in confirmed(WINDOWED).confirmed.items() if n != 4})
    found = verdict(placed(ALL), three)
    assert (found.is_clean, found.unanswered) == (True, 1)
    assert verdict(placed([m for m in ALL if m != (WINDOWED, 4)]), three).is_clean
    assert counts(verdict(placed([*ALL, (WINDOWED, 4)]), three)) == (0, 1, 0, 0, 0)


def test_a_refused_one_is_counted_and_not_lost() -> None:
    three = Sent(
        WINDOWED, 4, {n: at for n, at in confirmed(WINDOWED).confirmed.items() if n != 4}, frozenset({4})
    )
    found = verdict(placed([m for m in ALL if m != (WINDOWED, 4)]), three)
    assert (found.is_clean, found.refused, found.unanswered) == (True, 1, 0)


def test_of_plain_messages_so_many_may_be_missing_in_a_stream_as_were_refused_there() -> None:
    missing = next(number for number in (1, 2) if stream_of(PLAIN, number) == "EVENTS")
    streams = placed([m for m in ALL if m != (PLAIN, missing)])
    assert verdict(streams).lost == 1
    assert verdict(streams, Sent(PLAIN, 4, refused_unnamed={"ORDERS": 3})).lost == 1
    found = verdict(streams, Sent(PLAIN, 4, refused_unnamed={"EVENTS": 1}))
    assert (found.lost, found.refused) == (0, 1)


@pytest.mark.covers("BG-10")
def test_a_message_at_another_sequence_than_was_confirmed_is_displaced() -> None:
    streams = placed(ALL)
    stream = streams[stream_of(REPEATED, 4)]
    stream[99] = stream.pop(max(stream))
    assert counts(verdict(streams)) == (0, 0, 0, 1, 0)


def test_order_counts_per_publisher_and_stream() -> None:
    streams = placed(ALL)
    events = streams[stream_of(PLAIN, 4)]
    first, last = min(events), max(events)
    events[first], events[last] = events[last], events[first]
    assert counts(verdict(streams)) == (0, 0, 1, 0, 0)
    again = Sent(PLAIN, 4, resent=frozenset({4}))
    assert verdict(streams, again).disordered == 0


def test_what_nobody_wrote_there_is_foreign() -> None:
    streams = placed(ALL)
    streams["EVENTS"][50] = b"x"
    streams["EVENTS"][51] = payload(PLAIN, 77)
    streams["JOBS"][52] = payload(PRELOADED_MODE, 1)
    assert verdict(streams).foreign == 3


def test_deleted_messages_must_not_come_back() -> None:
    held = {n: payload(PRELOADED_MODE, n) for n in range(1, PRELOADED + 1) if n not in DELETED}
    clean, returned = Ledger([]), Ledger([])
    clean.note("AUDIT", held)
    assert clean.verdict().is_clean
    returned.note("AUDIT", {**held, 7: payload(PRELOADED_MODE, 7)})
    assert counts(returned.verdict()) == (0, 0, 0, 0, 1)


def test_each_publisher_writes_to_streams_that_there_are() -> None:
    names = {kind.name for kind in KINDS}
    assert len(names) == 6
    assert {stream for streams in STREAMS_OF.values() for stream in streams} == names


def seen(*sequences: int, is_ordered: bool = False) -> Deliveries:
    found = Deliveries("reader", "ORDERS", is_ordered)
    for sequence in sequences:
        found.note(sequence, payload(PLAIN, sequence))
    return found


def held(*sequences: int) -> dict[int, bytes]:
    return {n: payload(PLAIN, n) for n in sequences}


@pytest.mark.covers("BG-4")
def test_a_message_that_comes_again_is_wrong_only_behind_its_confirmed_acknowledgement() -> None:
    found = seen(1, 2, 1)
    assert found.wrongs(held(1, 2)) == []
    found.confirmed.add(2)
    found.note(2, payload(PLAIN, 2))
    assert found.wrongs(held(1, 2)) == [
        "reader on ORDERS: 1 messages came again after their acknowledgement was confirmed: [2]"
    ]


def test_an_ordered_consumer_sees_everything_once_and_in_order() -> None:
    assert seen(1, 2, 3, is_ordered=True).wrongs(held(1, 2, 3)) == []
    wrongs = seen(1, 3, 2, 2, is_ordered=True).wrongs(held(1, 2, 3))
    assert wrongs == [
        "reader on ORDERS: 1 messages came again: [2]",
        "reader on ORDERS: 2 messages came out of order",
    ]


def test_a_consumer_has_to_see_what_green_has_and_nothing_else() -> None:
    found = seen(1, 2)
    found.note(2, payload(PLAIN, 9))
    assert found.wrongs({1: payload(PLAIN, 8), 3: payload(PLAIN, 3)}) == [
        "reader on ORDERS: 1 messages never came: [3]",
        "reader on ORDERS: 1 messages came that green does not have: [2]",
        "reader on ORDERS: 1 messages came with another content than green has: [1]",
        "reader on ORDERS: 1 messages came with two contents: [2]",
    ]
