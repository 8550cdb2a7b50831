"""The process of a broker: core, listeners, logs, reloads, start and stop."""
