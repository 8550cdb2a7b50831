"""The Kubernetes API server of the embedded control plane.

Layers, lowest first: `store` (objects, revisions, watch history, SQLite), `resources` (what kinds there are),
`objects` (what a create, update, patch or delete means), `handlers` (HTTP). Everything a handler changes goes through
`objects`, so that defaults, validation, generations and finalizers are the same whichever way a write arrives.
"""
