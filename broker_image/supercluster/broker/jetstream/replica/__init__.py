"""One replica of a Raft group: roles, timers, checkpoints, lineages."""
