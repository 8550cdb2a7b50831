"""From events to rounds: kopf's handlers only feed the cache and wake workers; a round looks, plans, acts and tells."""
