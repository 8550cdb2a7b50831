"""Calls of operators and people: the admin API and what `$SYS` answers."""
