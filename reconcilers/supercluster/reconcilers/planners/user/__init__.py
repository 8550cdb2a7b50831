"""Users: their credentials, and the stages by which one is exchanged (docs/adr/users.md)."""
