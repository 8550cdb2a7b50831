"""Routes a message to its receivers: subscriptions, queue groups, accounts, and turns of the loop."""
