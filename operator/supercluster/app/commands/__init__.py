"""The commands of `supercluster`, one module each."""
