"""Level-triggered reconciliation: observe, plan, carry out one step, tell how it stands."""
