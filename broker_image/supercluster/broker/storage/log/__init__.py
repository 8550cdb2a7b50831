"""A group's log in segments, and the files beside it."""
