"""Level-triggered reconciliation: observe, plan, execute one step, patch the status."""
