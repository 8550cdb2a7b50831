"""A Cluster: what is made for its brokers, their certificates, and when they restart, grow and leave."""
