"""The comparison of one stream on two clusters."""
