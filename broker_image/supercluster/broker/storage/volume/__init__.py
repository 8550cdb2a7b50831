"""The data directory: its identity, the groups it has joined, and their logs."""
