"""From events to rounds: kopf's handlers only feed the cache and wake workers. A round observes, plans,
executes and patches the status.
"""
