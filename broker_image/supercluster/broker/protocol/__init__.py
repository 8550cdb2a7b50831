"""The NATS client protocol and the frames between brokers: bytes in, events out, without any I/O."""
