"""The audit of streams: checks that each publisher's messages are there, once and in order."""
