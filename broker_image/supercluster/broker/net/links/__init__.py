"""Links between brokers: how they are set up, the handshake, and the frames on them."""
