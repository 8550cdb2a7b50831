"""Transactions of writers that repeat their batches, as a part of a stream's state: pure."""
