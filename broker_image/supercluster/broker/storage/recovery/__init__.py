"""Opens the contents of a directory, and reads the intact parts of damaged files."""
