"""From a message to whom it is delivered: subscriptions, queue groups, accounts, and turns of the loop."""
