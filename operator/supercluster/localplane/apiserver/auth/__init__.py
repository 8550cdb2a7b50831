"""Authentication and authorization: tokens, certificates, roles."""
