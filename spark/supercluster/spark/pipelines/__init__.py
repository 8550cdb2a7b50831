"""Pipelines that ship with the product: each is a class, a command and a name (`registry.PIPELINES`)."""
