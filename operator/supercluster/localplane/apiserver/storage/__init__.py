"""Objects by resource and version, and selectors."""
