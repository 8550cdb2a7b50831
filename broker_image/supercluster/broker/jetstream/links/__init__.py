"""Frames between brokers."""
