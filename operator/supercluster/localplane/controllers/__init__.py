"""Controllers of the embedded control plane, for the built-in kinds.

Each is level-triggered: a changed object puts a key in a bounded queue, and `sync(key)` compares the desired
state with the caches. Pure functions make the decisions; a few lines beside them carry these out.
"""
