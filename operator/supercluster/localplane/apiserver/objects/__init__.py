"""The effects of a write on objects: admission, deletion, garbage collection, scaling, evictions."""
