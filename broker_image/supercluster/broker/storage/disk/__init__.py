"""What storage needs of a file system, and the room on it."""
