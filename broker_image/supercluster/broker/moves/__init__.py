"""Moves of live streams, the part that only thinks: what comes next, whether copies are equal, how fast, and the report.

Nothing in this package reads a clock, a log or the network. `jetstream.moves.mover` hands in what a stream's leader
sees, and carries out what comes back. docs/adr/moves.md has the reasons.
"""
