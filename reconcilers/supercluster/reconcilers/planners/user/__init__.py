"""Users: their credentials, and the stages of a rotation (docs/adr/users.md)."""
