"""A consumer's replicated state against a model that does the same slowly, and the codec of its operations."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.tiers import examples

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.config.consumer_checks import read_consumer
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind, OpsError, decode_ops, encode_ops

STREAM_LAST = 60
SEQS = st.lists(st.integers(min_value=1, max_value=STREAM_LAST + 5), min_size=1, max_size=8, unique=True)
OPS = st.builds(
    Op,
    kind=st.sampled_from(OpKind),
    seqs=SEQS.map(sorted),
    time_ns=st.integers(min_value=0, max_value=2**62),
    delay_ns=st.integers(min_value=0, max_value=2**61),
)


def config(policy: str, **fields: object) -> ConsumerConfig:
    return read_consumer({"name": "c", "ack_policy": policy, **fields})


def state(policy: str = "explicit", **fields: object) -> ConsumerState:
    return ConsumerState(name="c", config=config(policy, **fields), created_ns=1, start_seq=1)


@dataclass
class Model:
    """What was delivered and settled, without any cleverness."""

    policy: str
    cseq: int = 0
    sseq: int = 0
    first_cseq: dict[int, int] = field(default_factory=dict)
    open: set[int] = field(default_factory=set)
    times: dict[int, int] = field(default_factory=dict)

    def apply(self, op: Op) -> set[int]:
        settled: set[int] = set()
        if op.kind == OpKind.DELIVERED:
            for seq in op.seqs:
                # What was purged between delivery and entry takes its number all the same.
                self.cseq += seq <= STREAM_LAST
                if self.sseq < seq <= STREAM_LAST:
                    self.sseq = seq
                    if self.policy == "none":
                        settled.add(seq)
                    else:
                        self.first_cseq[seq] = self.cseq
                        self.open.add(seq)
        elif op.kind == OpKind.REDELIVERED:
            self.cseq += len(op.seqs)
            for seq in self.open & set(op.seqs):
                self.times[seq] = self.times.get(seq, 1) + 1
        elif op.kind in (OpKind.ACK, OpKind.TERM, OpKind.EXHAUSTED):
            settled = self.open & set(op.seqs)
        elif op.kind == OpKind.ACK_ALL:
            settled = {seq for seq in self.open if seq <= op.seqs[0]}
        elif op.kind == OpKind.RESET:
            self.open.clear()
            self.times.clear()
            self.sseq = min(op.seqs[0] - 1, STREAM_LAST)
            self.cseq = 0
        self.open -= settled
        for seq in settled:
            self.times.pop(seq, None)
        return set() if op.kind == OpKind.EXHAUSTED else settled


@given(st.lists(OPS, max_size=12))
def test_operations_survive_the_way_to_bytes_and_back(ops: list[Op]) -> None:
    found = [(op.kind, list(op.seqs), op.time_ns, op.delay_ns) for op in decode_ops(encode_ops(ops))]
    assert found == [(op.kind, list(op.seqs), op.time_ns, op.delay_ns) for op in ops]


def test_sequences_travel_in_the_order_given_and_far_apart() -> None:
    ops = [Op(OpKind.REDELIVERED, [9, 3, 4, 2**40]), Op(OpKind.DELIVERED, range(5, 1005)), Op(OpKind.ACK, [])]
    raw = encode_ops(ops)
    assert [list(op.seqs) for op in decode_ops(raw)] == [[9, 3, 4, 2**40], list(range(5, 1005))]


def test_dense_and_sparse_sequences_are_small() -> None:
    assert len(encode_ops([Op(OpKind.DELIVERED, range(10, 10_010))])) < 40
    sparse = list(range(1, 20_000, 2))
    raw = encode_ops([Op(OpKind.ACK, sparse)])
    assert len(raw) < 4 * len(sparse) + 40
    assert [list(op.seqs) for op in decode_ops(raw)] == [sparse]


@given(st.lists(OPS, min_size=1, max_size=4), st.data())
def test_operations_that_are_cut_off_are_refused(ops: list[Op], data: st.DataObject) -> None:
    raw = encode_ops(ops)
    ends = {0}
    for count in range(1, len(ops) + 1):
        ends.add(len(encode_ops(ops[:count])))
    cut = data.draw(st.integers(min_value=0, max_value=len(raw)))
    if cut in ends:
        assert len(list(decode_ops(raw[:cut]))) == sorted(ends).index(cut)
    else:
        with pytest.raises(OpsError):
            list(decode_ops(raw[:cut]))


@given(st.binary(min_size=1, max_size=60))
def test_garbage_is_refused_or_decoded_but_nothing_else(raw: bytes) -> None:
    try:
        for op in decode_ops(raw):
            assert op.kind in OpKind
    except OpsError:
        pass


@pytest.mark.covers("MV-10")
@settings(max_examples=examples(40, 200))
@given(
    st.sampled_from(["none", "explicit", "all"]), st.lists(st.one_of(OPS, st.just("restart")), max_size=30)
)
def test_the_state_agrees_with_its_model(policy: str, steps: list[Op | str]) -> None:
    found, model = state(policy, ack_wait=10, max_ack_pending=-1), Model(policy)
    floor = (0, 0)
    for step in steps:
        if isinstance(step, str):
            found = ConsumerState.restore(found.snapshot())
            continue
        settled = set(found.apply(encode_ops([step]), last_seq=STREAM_LAST))
        assert settled == model.apply(step)
        assert set(found.pending) == model.open
        assert list(found.pending) == sorted(model.open)
        assert found.deliveries == model.times
        assert (found.delivered_cseq, found.delivered_sseq) == (model.cseq, model.sseq)
        # A reset is the only way back, and it is asked for by name.
        if step.kind == OpKind.RESET:
            floor = (found.ack_floor_cseq, found.ack_floor_sseq)
        assert found.ack_floor_cseq >= floor[0]
        assert found.ack_floor_sseq >= floor[1]
        floor = (found.ack_floor_cseq, found.ack_floor_sseq)
        assert found.ack_floor_sseq <= found.delivered_sseq <= STREAM_LAST
        assert all(seq > found.ack_floor_sseq for seq in found.pending)
        if not model.open and policy != "none" and step.kind in (OpKind.ACK, OpKind.TERM):
            assert found.ack_floor_sseq == found.delivered_sseq


@given(st.lists(OPS, max_size=20))
def test_replaying_all_operations_is_the_same_as_going_on_from_a_snapshot(ops: list[Op]) -> None:
    straight, half = state(), state()
    for op in ops:
        straight.apply_op(op, last_seq=STREAM_LAST)
    raw = encode_ops(ops[: len(ops) // 2])
    half.apply(raw, last_seq=STREAM_LAST)
    half = ConsumerState.restore(half.snapshot())
    half.apply(encode_ops(ops[len(ops) // 2 :]), last_seq=STREAM_LAST)
    assert half.snapshot() == straight.snapshot()


@given(st.lists(OPS, max_size=20), st.integers(min_value=1, max_value=STREAM_LAST + 1))
def test_nothing_that_was_purged_is_pending(ops: list[Op], first_seq: int) -> None:
    found = state()
    found.apply(encode_ops(ops), last_seq=STREAM_LAST)
    found.drop_below(first_seq)
    assert all(seq >= first_seq for seq in found.pending)
    assert first_seq - 1 <= found.delivered_sseq <= STREAM_LAST
    assert found.ack_floor_sseq <= found.delivered_sseq


def test_a_copy_goes_its_own_way() -> None:
    one = state()
    one.apply_op(Op(OpKind.DELIVERED, range(1, 5)), last_seq=10)
    other = one.copy()
    assert other.snapshot() == one.snapshot()
    other.apply_op(Op(OpKind.ACK, [1, 2]), last_seq=10)
    assert len(one.pending) == 4
    assert len(other.pending) == 2


def test_what_interest_retention_asks() -> None:
    found = state("explicit", filter_subject="a.*")
    found.apply_op(Op(OpKind.DELIVERED, [1, 3]), last_seq=10)
    found.apply_op(Op(OpKind.ACK, [1]), last_seq=10)
    assert [found.wants(seq, b"a.x") for seq in (1, 2, 3, 4)] == [False, False, True, True]
    assert not found.wants(4, b"b.x")


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_snapshot_that_is_cut_off_is_refused(cut: int) -> None:
    found = state()
    found.apply_op(Op(OpKind.DELIVERED, range(1, 5)), last_seq=10)
    with pytest.raises(ValueError, match="consumer snapshot"):
        ConsumerState.restore(found.snapshot()[:-cut])
    with pytest.raises(ValueError, match="version"):
        ConsumerState.restore(b"\x09" + found.snapshot()[1:])
