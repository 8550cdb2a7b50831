"""Controllers of the embedded control plane, for the built-in kinds.

Each is level-triggered: a changed object puts a key in a bounded queue, and `sync(key)` compares what is wanted with
what the caches show. What to do is decided by pure functions; carrying it out is a few lines beside them.
"""
