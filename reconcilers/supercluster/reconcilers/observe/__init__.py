"""Observation: one immutable snapshot per round, of Kubernetes (from a cache that events feed) and of the
brokers.
"""
