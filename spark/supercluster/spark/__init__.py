"""Spark reads and writes streams: the data source, and its client for the brokers.

It depends neither on the operator nor on the broker's code: an executor installs `supercluster[spark]` and no
more.
"""
