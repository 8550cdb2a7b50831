"""Executes one step of a plan. Every step can be repeated without harm, since its effect may already exist."""
