"""Configurations of streams and consumers, and the rules that they must satisfy."""
