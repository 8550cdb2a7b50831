"""The bulk port: messages of a stream as Arrow columns (`docs/adr/bulk-reads.md`)."""
