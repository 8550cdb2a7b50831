"""Reads ranges of sequences from the bulk port of brokers (`docs/adr/bulk-reads.md`)."""
