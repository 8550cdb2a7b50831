"""The versions that the broker reports."""

VERSION = "0.1.0"

NATS_VERSION = "2.15.1"
"""The NATS server whose protocol and JetStream API the broker speaks: clients decide by it what they may ask for."""
