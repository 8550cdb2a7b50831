"""Reads ranges of sequences over the NATS protocol."""
