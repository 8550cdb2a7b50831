"""The node agent: runs pods as local process trees on simulated nodes.

Guarantees: nothing it started outlives it; a pod has one loopback address, and a StatefulSet's pod gets the same one
again; two incarnations of one pod name never run at the same time. It is not isolation: pods share the machine's file
system, users and ports (each on its own address).
"""
