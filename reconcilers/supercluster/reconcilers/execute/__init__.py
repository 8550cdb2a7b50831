"""Carrying out one step of a plan. Every step can be repeated without harm: what it wanted may be there already."""
