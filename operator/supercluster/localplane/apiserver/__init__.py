"""The Kubernetes API server of the embedded control plane.

Layers, lowest first: `storage` (kinds, objects, revisions, watch history, SQLite), `schema` (validation,
defaults, patches), `objects` (the semantics of create, update, patch and delete), `http` (requests and
answers). Every change by a handler goes through `objects`, so that defaults, validation, generations and
finalizers are the same for every kind of write.
"""
