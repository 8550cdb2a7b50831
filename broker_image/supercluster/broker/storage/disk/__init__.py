"""The interface of storage to a file system, and the free room on it."""
