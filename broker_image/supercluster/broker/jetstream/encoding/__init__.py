"""Encodings that several packages share: bytes of entries, JSON fields, times."""
