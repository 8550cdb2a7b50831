"""Recovery by force of streams and of the map, where no majority is left."""
