"""The kinds of custom resources, one record each: how the operator observes and plans it, the events that
wake it, and its steps.
"""
