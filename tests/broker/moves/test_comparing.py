"""A comparison of copies whose work or whose answers are lost: it comes to an end, or somebody is told whom it waits for."""

from __future__ import annotations

import pytest
from tests.broker.moves.world import STREAM, MoveWorld

from supercluster.broker.jetstream.links.comparison_frames import (
    HashesAsked,
    encode_ask,
)
from supercluster.broker.jetstream.links.frames import Frame
from supercluster.broker.jetstream.moves import range_hasher
from supercluster.broker.jetstream.moves.range_hasher import RangeHasher
from supercluster.broker.moves.comparison import Comparison
from supercluster.broker.moves.watch import UNANSWERED_MS
from supercluster.broker.ports import Channel


class ComparingWorld(MoveWorld):
    """Brokers can keep their hashes to themselves."""

    def __init__(self) -> None:
        super().__init__(1, east=3, west=3)
        self.silent: set[str] = set()

    def send(
        self, frm: str, to: str, frame_type: int, body: bytes, channel: Channel = Channel.CONTROL
    ) -> bool:
        if frm in self.silent and frame_type == Frame.MOVE_HASHED:
            return True
        return super().send(frm, to, frame_type, body, channel)


def moving() -> ComparingWorld:
    """A stream that takes some turns to hash, on its way to west."""
    world = ComparingWorld()
    world.begin()
    world.create("east")
    load = world.load("east-1", "acked", 0.05)
    assert world.run_until(lambda: load.sent >= 1000, 60_000)
    load.runs = False
    world.run_ms(200)
    world.move(["west-0", "west-1", "west-2"])
    return world


def own_comparison(world: MoveWorld) -> tuple[Comparison, RangeHasher] | None:
    """The joint comparison, while the leader hashes its own copy for it."""
    leader = world.leader()
    if leader is None or leader.move.mover is None or not leader.move.mover._compare.is_for(joint=True):
        return None
    found, work = leader.move.mover._compare._comparison, leader.copy.range_hasher._work
    if found is None or found.knows_own or work is None or work.ask.number != found.number:
        return None
    return found, leader.copy.range_hasher


@pytest.mark.covers("MV-9")
@pytest.mark.parametrize("how", ["an ask of an earlier comparison arrives late", "the work is lost"])
def test_a_leader_that_is_disturbed_while_it_hashes_its_own_copy_goes_on(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(range_hasher, "HASH_BYTES", 4096)
    world = moving()
    assert world.run_until(lambda: own_comparison(world) is not None, 15_000)
    hashing, leader = own_comparison(world), world.leader()
    assert hashing is not None
    assert leader is not None
    found, its_auditor = hashing
    if how == "the work is lost":
        its_auditor._work = None
    else:
        late = HashesAsked(
            leader.id, leader.member, found.number - (1 << 16), found.mark - 1, found.floor_seq, 0
        )
        core = world.nodes[world.leader_node()].core
        assert core is not None
        other = next(name for name in ("west-1", "west-2") if name != core.node)
        core.on_frame(other, Frame.MOVE_HASHES, memoryview(b"".join(encode_ask(late))))
    world.until("ended done")
    world.finish()


@pytest.mark.covers("MV-9")
def test_a_copy_that_never_answers_hashes_is_named_until_it_does() -> None:
    world = moving()
    world.silent.add("west-1")
    world.until("comparing")

    def trouble() -> str:
        answer = world.api(
            world.leader_node(), f"$JS.API.STREAM.INFO.{STREAM}", {"supercluster_details": True}
        )
        return str(answer["move"]["trouble"])

    world.run_ms(UNANSWERED_MS - 2000)
    assert trouble() == ""
    world.run_ms(4000)
    assert world.stage() == "comparing"
    assert "has not answered hashes of its ranges for 6" in trouble()
    assert trouble().startswith("west-1@")
    said = [text for _, reason, text in world.events if reason == "MoveWaits"]
    assert len(said) == 1
    assert "waits for west-1@" in said[0]
    world.silent.clear()
    world.until("ended done")
    world.finish()


@pytest.mark.covers("MV-13")
@pytest.mark.parametrize("bytes_per_s", [4, pytest.param(200, marks=pytest.mark.long)])
def test_a_limit_that_lets_nothing_go_for_minutes_is_named_and_can_be_raised(bytes_per_s: int) -> None:
    world = MoveWorld(1, east=3, west=3)
    world.begin()
    world.create("east")
    load = world.load("east-1", "acked", 0.5)
    assert world.run_until(lambda: load.sent >= 1000, 60_000)
    load.runs = False
    world.run_ms(200)
    world.move(["west-0", "west-1", "west-2"], bytes_per_s)
    steps = world.steps
    world.run_ms(30_000)
    # Six brokers in 30 s: a sixth of the milliseconds, most of them for clocks that brokers say each second.
    assert world.steps - steps < 30_000, "it waits, and does not turn with every millisecond"
    answer = world.api(world.leader_node(), f"$JS.API.STREAM.INFO.{STREAM}", {"supercluster_details": True})
    said = f"raise the bandwidth of the move: at {bytes_per_s} bytes/s nothing is sent"
    assert said in answer["move"]["trouble"]
    assert [reason for _, reason, _ in world.events].count("MoveTooSlow") == 1
    world.set_pace(1_000_000)
    world.until("ended done")
    world.finish()
