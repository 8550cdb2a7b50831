"""Work cut into slices, so that no turn of the loop is long."""
