"""The process of a broker: settings, credentials, names, logs, start and stop."""
