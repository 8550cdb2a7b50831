"""Moves of live streams, without I/O: the next step, the comparison of copies, the pace, and the report.

Nothing in this package reads a clock, a log or the network. `jetstream.moves.mover` passes in the
observations of a stream's leader, and carries out the result. docs/adr/moves.md has the reasons.
"""
