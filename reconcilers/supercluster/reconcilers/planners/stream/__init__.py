"""A Stream: its configuration, where its replicas live, and its recovery."""
