"""A stream on its way to another super-cluster, carried out by the leaders of its two groups."""
