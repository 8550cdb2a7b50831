"""The cases, an area per module."""
