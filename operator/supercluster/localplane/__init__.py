"""The embedded control plane: a Kubernetes API on loopback, controllers and a node agent, in one process.

It is for laptops and tests, never for production: one process, one disk, no replication, no isolation between
pods. No other part of the product depends on it; the operator only gets a kubeconfig.
"""
