"""Objects by resource and version, and what selects them."""
