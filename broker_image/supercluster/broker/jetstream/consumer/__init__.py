"""A consumer on its stream's leader: it selects messages, delivers them to clients, and redelivers them."""
