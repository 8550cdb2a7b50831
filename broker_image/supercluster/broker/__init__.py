"""The broker: speaks NATS to clients, and keeps streams in Raft groups. ARCHITECTURE.md describes the folders."""
