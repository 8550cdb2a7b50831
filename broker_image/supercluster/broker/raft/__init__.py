"""The Raft core of one group: pure, so that broker, tests and simulator run the same code.

`node.Raft` takes messages, ticks and proposals, and hands out what is to be done in `config.Ready`. Nothing in this
package reads a clock, draws from a global random source or touches a file or a socket; the log is `ports.RaftLog`.
"""
