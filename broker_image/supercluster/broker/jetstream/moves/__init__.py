"""A stream's move to another cluster, on its leader."""
