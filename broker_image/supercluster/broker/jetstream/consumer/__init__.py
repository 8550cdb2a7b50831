"""A consumer on its stream's leader: what is delivered, when, to whom, and when again."""
