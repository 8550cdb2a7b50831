"""A StreamMove: the condition that it waits for, its progress, and its status."""
