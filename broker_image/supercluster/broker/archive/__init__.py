"""The format of a stream's backup: the archive's entries, and the compressed frames around them. Pure.

The format is that of nats-server 2.15 (`docs/adr/backups.md`), so that an archive of one server can be
restored on the other.
"""
