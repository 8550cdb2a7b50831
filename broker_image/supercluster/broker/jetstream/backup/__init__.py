"""A stream as an archive: sent to a client, received from one, salvaged from a damaged copy."""
