"""Pure planners: `plan(desired, observed, now) -> Plan`.

The same input gives the same plan, converged input gives an empty one, and a refusal is data (a condition).
Nothing here imports more than `supercluster.api` and the standard library. Work that needs randomness, clocks
or the network is a step for `execute`.
"""
