"""A broker's core: its parts put together, and the turns in which they work."""
