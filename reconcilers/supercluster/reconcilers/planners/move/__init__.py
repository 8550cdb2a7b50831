"""A StreamMove: what it waits for, how far it is, what it says."""
