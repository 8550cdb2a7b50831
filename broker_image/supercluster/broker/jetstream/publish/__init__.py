"""From a client's publish to an entry of the log: windows, sessions, admission, proposals."""
