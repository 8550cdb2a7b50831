"""The embedded control plane: a Kubernetes API on loopback, controllers and a node agent, in one process.

It is for laptops and tests, never for production: one process, one disk, no replication, no isolation between pods.
Nothing else in the product knows about it; the operator gets a kubeconfig, that is all.
"""
