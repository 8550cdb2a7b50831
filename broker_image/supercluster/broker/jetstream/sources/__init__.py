"""Mirrors and sources: reading from another stream, and being read."""
