"""Configurations of streams and consumers, and what is accepted in them."""
