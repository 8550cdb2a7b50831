"""Replicas that are lost, drained or too many, and who takes their place."""
