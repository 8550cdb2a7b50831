"""A Migration: obstacles, its start, its status, and its end."""
