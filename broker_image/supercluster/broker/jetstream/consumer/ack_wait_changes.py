"""Applies a changed ack_wait or backoff to messages that already wait for an acknowledgement, as NATS does.

Older brokers move no deadline when they apply a configuration, and the effect of an entry may never change
(`docs/adr/versions.md`), or replicas would differ. So the leader appends operations that all versions know,
which give each pending message its new deadline. If the leader is deposed before these are committed, or
cannot append them, the deadlines stay: such a message is redelivered once by the old wait, and by the new one
from then on.
"""

from __future__ import annotations

from supercluster.broker.jetstream.config.consumer import ConsumerConfig
from supercluster.broker.jetstream.state.consumer import ConsumerState
from supercluster.broker.jetstream.state.consumer_ops import Op, OpKind

# An operation is one deadline. When there are more, those next to each other become one, the last of them.
DEADLINES_MAX = 4096


def moved_deadlines(
    state: ConsumerState,
    before: ConsumerConfig,
    now: ConsumerConfig,
    now_ns: int,
    *,
    deadlines_max: int = DEADLINES_MAX,
) -> list[Op]:
    """What is to be noted when `before` became `now`. Each deadline moves by as much as the wait of the message's last delivery
    did, also where a client has asked for another time; what is due already stays so, and what was delivered for the last time
    is never due."""
    if (before.ack_wait_ns, before.backoff_ns) == (now.ack_wait_ns, now.backoff_ns) or not now.needs_ack:
        return []
    by_due: dict[int, list[int]] = {}
    for seq, (_, due_ns) in state.pending.items():
        times = state.deliveries.get(seq, 1)
        moved_by_ns = now.wait_ns(times) - before.wait_ns(times)
        if moved_by_ns and due_ns > now_ns and seq not in state.exhausted:
            by_due.setdefault(max(due_ns + moved_by_ns, now_ns), []).append(seq)
    return [Op(OpKind.NAK, seqs, now_ns, due_ns - now_ns) for due_ns, seqs in _few(by_due, deadlines_max)]


def _few(by_due: dict[int, list[int]], deadlines_max: int) -> list[tuple[int, list[int]]]:
    """No more than `deadlines_max` of them, the first one first."""
    found = sorted(by_due.items())
    together = -(-len(found) // deadlines_max)
    if together <= 1:
        return found
    stretches = (found[at : at + together] for at in range(0, len(found), together))
    return [(stretch[-1][0], sorted(seq for _, seqs in stretch for seq in seqs)) for stretch in stretches]
