"""Requests of this broker's clients: routed to the group that answers, retried, answered."""
