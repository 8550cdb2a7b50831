"""Users of a broker: their logins, passwords, nkeys and certificates, and what each account may do."""
