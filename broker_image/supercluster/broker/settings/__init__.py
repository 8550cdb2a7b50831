"""The settings of a broker, and the stamps that detect a changed file."""
