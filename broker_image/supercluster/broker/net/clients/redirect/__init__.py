"""Clients that are sent to another super-cluster: who is asked, when, and what is known of it. Pure: no I/O, time handed in."""
