"""A stream's way to another super-cluster: the stages as a table, and the names of brokers of two worlds.

Pure: what a stream's leader sees comes in, and what it does next comes out.
"""
