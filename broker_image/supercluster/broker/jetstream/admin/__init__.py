"""Calls by the operator and by administrators: the admin API and the answers under `$SYS`."""
