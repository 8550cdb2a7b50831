"""A stream's way to another super-cluster: the stages as a table, and the names of brokers of two worlds.

Pure: the observations of a stream's leader come in, and its next step comes out.
"""
