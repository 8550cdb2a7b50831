"""A Cluster: the objects for its brokers, their certificates, restarts, scaling and removal."""
