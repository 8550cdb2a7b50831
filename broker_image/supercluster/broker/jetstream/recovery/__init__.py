"""Forced recovery of streams and of the map when no majority is left."""
