"""What a write does to an object: admission, deletion, garbage collection, scaling, evictions."""
