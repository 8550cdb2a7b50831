"""The cut of a stream: which sections have an effect, and what of it is kept (SF-19 to SF-21, BG-4, BG-10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.jetstream.publish.stream_story import StreamStory, message

from supercluster.broker.jetstream.encoding.codec import Reader, WireError, u8
from supercluster.broker.jetstream.encoding.sections import Section
from supercluster.broker.jetstream.state.cut import (
    NO_CUT,
    At,
    Cut,
    CutStage,
    Fence,
    Handed,
    Opened,
    Unfenced,
    after,
    encode_refused,
)
from supercluster.broker.jetstream.state.snapshot import snapshot_of
from supercluster.broker.migration.worlds import far_name

GREEN, BLUE = "9c21b3fa", "1b3fa9c2"
MEMBERS = ("green-0%9c21b3fa@a.1", "green-1%9c21b3fa@b.1")
Step = tuple[Section, bytes]


def fence(attempt: int = 1) -> Step:
    return Section.FENCED, Fence("m1", attempt, GREEN, MEMBERS).encode()


def unfence(attempt: int = 1, *, is_refused: bool = False) -> Step:
    return Section.UNFENCED, Unfenced(attempt, is_refused).encode()


def hand(attempt: int = 1, digest: bytes = b"d" * 16) -> Step:
    return Section.HANDED, Handed(attempt, digest).encode()


def open_it(attempt: int = 1, digest: bytes = b"d" * 16) -> Step:
    return Section.OPENED, Opened(attempt, digest, BLUE).encode()


def refuse(attempt: int = 1) -> Step:
    return Section.REFUSED, encode_refused(attempt)


def cut_after(*steps: Step) -> Cut:
    cut = NO_CUT
    for index, (kind, body) in enumerate(steps, 10):
        cut = after(cut, kind, body, At(index, 3, 100 + index, 7 * index))
    return cut


@pytest.mark.parametrize(
    ("steps", "stage"),
    [
        ([fence()], CutStage.FENCED),
        ([fence(), unfence()], CutStage.NONE),
        ([fence(), unfence(), fence(2)], CutStage.FENCED),
        ([fence(), hand()], CutStage.HANDED),
        ([fence(), hand(), open_it()], CutStage.OPEN),
        ([fence(), hand(), refuse()], CutStage.REFUSED),
        ([fence(), hand(), unfence(is_refused=True)], CutStage.NONE),
        ([fence(), hand(), open_it(), fence(2)], CutStage.FENCED),
    ],
)
def test_the_sections_that_fit_move_it(steps: list[Step], stage: CutStage) -> None:
    assert cut_after(*steps).stage is stage


@pytest.mark.parametrize(
    ("steps", "too_much"),
    [
        ([], hand()),
        ([], open_it()),
        ([], refuse()),
        ([], unfence()),
        ([fence()], fence(2)),
        ([fence()], unfence(2)),
        ([fence()], hand(2)),
        ([fence()], open_it()),
        ([fence()], refuse()),
        ([fence(), hand()], unfence()),
        ([fence(), hand()], unfence(2, is_refused=True)),
        ([fence(), hand()], hand()),
        ([fence(), hand()], open_it(2)),
        ([fence(), hand()], open_it(1, b"e" * 16)),
        ([fence(), hand()], refuse(2)),
        ([fence(), hand(), refuse()], open_it()),
        ([fence(), hand(), refuse()], fence(2)),
        ([fence(), hand(), open_it()], refuse()),
        ([fence(), hand(), open_it()], unfence(is_refused=True)),
    ],
)
def test_one_that_does_not_fit_has_no_effect(steps: list[Step], too_much: Step) -> None:
    """SF-20: no unfence behind HANDED without green's refusal, no OPEN without the entry handed and its digest, none behind a
    refusal."""
    assert cut_after(*steps, too_much) == cut_after(*steps)


def test_the_entry_handed_is_known_to_the_copy_that_goes_on_behind_it() -> None:
    cut = cut_after(fence(), hand())
    assert (cut.fenced_index, cut.handed_index, cut.handed_term) == (10, 11, 3)
    assert cut.fenced_ns == 70
    assert (cut.last_seq, cut.digest, cut.world, cut.members) == (110, b"d" * 16, GREEN, MEMBERS)


@given(st.lists(st.sampled_from([fence(), fence(2), unfence(), hand(), open_it(), refuse()]), max_size=8))
def test_what_was_closed_opens_again_by_one_way_of_two(steps: list[Step]) -> None:
    """SF-20: a stream that was handed takes writes again by OPENED alone, unless green refused."""
    cut = NO_CUT
    for index, (kind, body) in enumerate(steps):
        before, cut = cut, after(cut, kind, body, At(index, 1, 0, 0))
        if before.stage is CutStage.HANDED and not cut.is_closed:
            assert kind is Section.OPENED
        assert Cut.decode(Reader(cut.encode() or u8(0) + Fence("", 0, "", ()).encode() + bytes(44))) == cut


def test_only_a_stream_that_ever_was_fenced_has_it_in_its_snapshot() -> None:
    story = StreamStory()
    story.store(message())
    before = snapshot_of(story.state)
    for kind, body in (fence(), hand()):
        story.command(kind, body)
        assert story.restored().cut == story.state.cut
    assert story.state.cut.last_seq == 1
    kind, body = unfence(is_refused=True)
    story.command(kind, body)
    assert len(snapshot_of(story.state)) == len(before)


def test_sessions_of_blue_have_its_name_once_green_is_open() -> None:
    """Rule 8 of the cutover: brokers of both sides may have equal names and shut each other out otherwise."""
    story = StreamStory()
    story.store(message())
    (session,) = story.state.sessions.states()
    old = session.key
    for kind, body in (fence(), hand(), open_it()):
        story.command(kind, body)
    (renamed,) = story.restored().sessions.states()
    assert renamed.key.node == far_name(old.node, BLUE)
    assert renamed.last_number == session.last_number
    assert story.state.sessions.current(old) is None


@pytest.mark.parametrize("cut_off", range(1, 90, 7))
def test_half_a_cut_is_none(cut_off: int) -> None:
    whole = cut_after(fence(), hand()).encode()
    with pytest.raises(WireError):
        Cut.decode(Reader(whole[:cut_off]))
    with pytest.raises(WireError):
        Cut.decode(Reader(u8(9) + whole[1:]))
