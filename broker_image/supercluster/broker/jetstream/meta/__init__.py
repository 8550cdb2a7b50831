"""The map of streams: the meta group's replicated state."""
