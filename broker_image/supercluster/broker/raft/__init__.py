"""The Raft core of one group. Broker, tests and simulator run the same code.

`node.RaftNode` is one member of one group. It takes messages, ticks and proposals, and returns the work of a
turn as `config.Ready`. Nothing in this package reads a clock, draws from a global random source or touches a
file or a socket; the log is `ports.RaftLog`.

Contract for the caller, which runs one node per group and turn of its loop:

1. Report each event: `step` for a message, `tick` when `next_deadline_ms` has come, `persisted` when the log
   became durable, `propose` and its relatives for the caller's own wishes.
2. Call `ready` once and do its work in the order that `config.Ready` describes. The hard state is durable
   before any message leaves.
3. Call `tick` no later than at `next_deadline_ms`.

There is at most one leader per term. A committed entry is in the log of every later leader. No entry is
confirmed that the log does not call durable. A member with a doubtful log grants no ordinary vote (RP-8,
SF-4).

The node owns the parts and connects them. Each part is given the state and the calls that it needs, never the
node:

- the state: `state.State`, `confchange.MembershipTrack`, and the other members as the leader sees them,
  `tracker.Tracker`
- the roles: `election.Election`, `follower.Follower`, `leader.Leader`
- the leader's work: `sender.Sender` with `throttle.Throttle` for learners, `read_queue.ReadQueue`
"""
