"""Fixtures: planes of this process, stopped after each test."""

from tests.localplane.lab import lab, labs

__all__ = ["lab", "labs"]
