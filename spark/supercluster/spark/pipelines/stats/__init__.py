"""Statistics of streams by window and subject prefix."""
