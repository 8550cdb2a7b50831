"""Connections of clients: listeners, TLS and WebSocket, logins and limits."""
