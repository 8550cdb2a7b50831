"""Spark reads streams: the data source, and what it needs to speak to brokers.

It knows nothing of the operator or of the broker's code: an executor installs `supercluster[spark]` and no more.
"""
