"""Who asks, and whether they may: tokens, certificates, roles."""
