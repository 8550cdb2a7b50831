"""Where copies are placed. Pure."""
