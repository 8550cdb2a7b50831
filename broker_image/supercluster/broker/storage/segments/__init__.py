"""Files of records: segments, the index of their entries, and the detection of damage."""
