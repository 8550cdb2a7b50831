"""A SuperCluster: accounts, credentials, cordons, and the recovery of its map of streams."""
