"""A group's log in segments, with what is kept beside it."""
