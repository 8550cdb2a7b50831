"""The settings of a broker, and the stamps by which a changed file is noticed."""
