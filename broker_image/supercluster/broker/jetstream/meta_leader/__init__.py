"""Decisions of the meta group's leader."""
