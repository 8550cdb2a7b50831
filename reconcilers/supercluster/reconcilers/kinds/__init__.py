"""The kinds of custom resources, one record each: how it is observed and planned, what wakes it, and which steps it has."""
