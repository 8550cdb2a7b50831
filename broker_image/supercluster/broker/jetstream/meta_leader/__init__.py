"""What the meta group's leader decides."""
