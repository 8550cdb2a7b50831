"""A Migration: what speaks against it, when it starts, what is said of it, and how it ends."""
