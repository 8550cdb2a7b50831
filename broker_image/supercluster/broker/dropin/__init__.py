"""A broker in nats-server's place: its command line and its configuration files."""
