"""The node agent: runs pods as local process trees on simulated nodes.

No process that it started outlives it. A pod has one loopback address, and a StatefulSet's pod gets the same
one again. Two incarnations of one pod name never run at the same time. It does not isolate pods: they share
the machine's file system, users and ports (each on its own address).
"""
