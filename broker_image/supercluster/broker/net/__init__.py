"""Sockets of a broker: the client listener, the links to other brokers, and the routing between them."""
