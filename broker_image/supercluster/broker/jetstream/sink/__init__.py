"""Transactions of writers that repeat their batches, as part of a stream's state. Pure."""
