"""HTTP endpoints of a broker: health, statistics, metrics, administration."""
