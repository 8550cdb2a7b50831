"""Files of records: segments, where their entries are, and how damage is found."""
