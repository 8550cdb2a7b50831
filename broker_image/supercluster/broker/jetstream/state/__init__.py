"""A stream's replicated state: messages, consumers, sessions, snapshots."""
