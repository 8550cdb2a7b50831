"""Opening what a directory has, and what can be read of damaged files."""
