"""Subjects and filters: overlap, capture, interest."""
