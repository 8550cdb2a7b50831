"""Decides which clients are redirected to another super-cluster, and when. Pure: no I/O, the caller passes in
the time.
"""
